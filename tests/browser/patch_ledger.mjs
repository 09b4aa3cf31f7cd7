// The patch ledger in a browser, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const state = JSON.parse(readFileSync(settings.state, "utf8"));
const share = (w) => (w / 1000).toFixed(2).replace(/^0/, "");
const home = (page) =>
  page.locator("[role=gridcell][tabindex='0']").first().focus();
/** Choose an option as a keyboard does: Home, then Down. */
async function choose(page, label, place) {
  await page.getByLabel(label).first().focus();
  await page.keyboard.press("Home");
  for (let n = 0; n < place; n += 1) await page.keyboard.press("ArrowDown");
  await home(page);
}
/** The weights on the digit, and the ledger as [weight, name, …] rows. */
const look = (page) => page.evaluate(() => ({
  squares: [...document.querySelectorAll(".attn-patches [data-cell]")]
    .map((e) => e.textContent),
  rows: [...document.querySelectorAll(".attn-sum tr")].map((r) =>
    [...r.cells].map((c) => c.textContent)),
  says: document.querySelector("[role=status]").textContent,
  passed: [...document.querySelectorAll(".attn-stage .attn-verdict")]
    .map((v) => v.textContent.startsWith("✓")),
}));
/** Hold what is shown of a query to the run. */
function hold(run, query, shown, check) {
  const place = `run ${state.runs.indexOf(run)} query ${query}`;
  const row = run.weights.slice(16 * query, 16 * query + 16);
  check(`${shown.squares}` === `${row.map(share)}`, `${place}: ${shown.squares}`);
  check(shown.rows.length === 17, `${place}: ${shown.rows.length} rows`);
  const listed = shown.rows.slice(0, 16).map(([weight, name]) => [weight, Number(name.slice(3))]);
  check(listed.every(([weight, key]) => weight === share(row[key])), `${place}: ${listed}`);
  check(new Set(listed.map(([, key]) => key)).size === 16, `${place}: ${listed}`);
  check(shown.rows[16][0] === share(run.sums[query]), `${place}: sum ${shown.rows[16][0]}`);
  check(shown.rows[16].length === 2 + state.sources[run.source].D, `${place}: ${shown.rows[16]}`);
  check(shown.says.startsWith(`Patch ${query}: `), `${place}: ${shown.says}`);
}
const find = (source, temperature, axis) => state.runs.find((r) =>
  r.source === source && r.temperature === temperature && r.axis === axis);

await report({
  async "weights stay hidden until the reader has predicted or asked"(check) {
    const page = await open("patch_ledger-light.html");
    const before = await look(page);
    check(before.squares.join("") === "" && before.rows.length === 0, `${before.squares}`);
    await home(page);
    await page.keyboard.press("s");
    hold(state.runs[0], 6, await look(page), check);
  },

  async "arrows show every query of the recorded run"(check) {
    const page = await open("patch_ledger-light.html");
    await home(page);
    await page.keyboard.press("Home");
    for (let query = 0; query < 16; query += 1) {
      hold(state.runs[0], query, await look(page), check);
      await page.keyboard.press(query % 4 === 3 ? "Space" : "ArrowRight");
    }
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowUp");
    hold(state.runs[0], 11, await look(page), check);
  },

  async "every source, temperature and mistake is the recorded one"(check) {
    const page = await open("patch_ledger-light.html");
    const ladder = [...new Set(state.runs.map((r) => r.temperature))].sort((a, b) => a - b);
    const seen = new Set();
    await home(page);
    await page.keyboard.press("s");
    const see = async (run) => {
      seen.add(run);
      const shown = await look(page);
      hold(run, 6, shown, check);
      const isRight = run.axis === "S";
      check(`${shown.passed}` === `${[isRight, isRight, true]}`, `verdicts ${shown.passed}`);
    };
    for (const source of state.sources.keys()) {
      await choose(page, "digit, and what", source);
      await see(find(source, 1, "S"));
      const isLadder = await page.getByLabel("temperature").isVisible();
      check(isLadder === Boolean(find(source, ladder[0], "S")), `source ${source}: temperatures`);
      for (const place of isLadder ? ladder.keys() : []) {
        await choose(page, "temperature", place);
        await see(find(source, ladder[place], "S"));
      }
      if (isLadder) await choose(page, "temperature", ladder.indexOf(1));
      await page.keyboard.press("b");
      const wrong = find(source, 1, "L");
      if (wrong) {
        await see(wrong);
        await page.keyboard.press("b");
      } else check((await look(page)).says.includes("not recorded"), "no word about the mistake");
      if (wrong) await see(find(source, 1, "S"));
    }
    check(seen.size === state.runs.length, `${seen.size} of ${state.runs.length} runs seen`);
    check(page.faults.length === 0, page.faults.join());
  },

  async "identical keys: the guess stands beside what the run says"(check) {
    const page = await open("patch_ledger-light.html");
    await home(page);
    await page.keyboard.press("p");
    await page.keyboard.press("Enter"); // the first
    const text = await page.locator(".attn-stage").innerText();
    check(text.includes("; the run says both the same."), text);
  },
});
