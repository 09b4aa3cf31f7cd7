// The packing map in a browser, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const { runs, E } = JSON.parse(readFileSync(settings.state, "utf8"));
const told = (page) => page.locator("[role=status]").first().innerText();
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};
const focus = (page, grid) =>
  page.locator("[role=grid]").nth(grid).locator("[tabindex='0']").focus();
/** Texts, kinds and the cursor of both grids. */
const look = (page) => page.evaluate(() =>
  [...document.querySelectorAll("[role=grid]")].map((grid) => {
    const squares = [...grid.querySelectorAll("[data-cell]")];
    return {
      texts: squares.map((s) => s.textContent).filter(Boolean),
      roles: squares.map((s) => s.className.match(/attn-([qkv])/)?.[1]).filter(Boolean),
      hit: squares.flatMap((s, n) => (s.matches(".attn-hit") ? [n] : [])),
      cursor: squares.findIndex((s) => s.matches("[aria-selected=true]")),
    };
  }));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const choose = async (page, run, pair) => {
  await page.locator("select").nth(0).selectOption({ index: runs.indexOf(run) });
  await page.locator("select").nth(1).selectOption(`(${pair.source})`);
  await page.locator("select").nth(2).selectOption(`(${pair.target})`);
  await focus(page, 0);
};
const ready = async () => {
  const page = await open("packing_map-light.html");
  await focus(page, 0);
  return page;
};

await report({
  async "every pair of every run shows its rows, converted and misread"(check) {
    const page = await ready();
    for (const run of runs) {
      for (const pair of run.pairs) {
        const place = `${run.name} ${pair.source} → ${pair.target}`;
        await choose(page, run, pair);
        const names = (layout) => run.layouts[layout].map((n) => run.names[n]);
        const [before, after] = [names(pair.source), names(pair.target)];
        let [from, to] = await look(page);
        check(same(from.texts, before) && same(to.texts, after), `${place}: ${to.texts}`);
        check(same(to.roles, after.map((name) => name[0])), `${place}: roles ${to.roles}`);
        check(to.hit.length === 0, `${place}: marks a right row`);
        const strip = page.locator(".attn-stage .attn-verdict");
        check((await strip.nth(1).innerText()).startsWith("✓"), `${place}: fails`);
        await press(page, "b");
        [from, to] = await look(page);
        const wrong = before.flatMap((name, n) => (name !== after[n] ? [n] : []));
        check(same(from.texts, before) && same(to.texts, after), `${place}: ${to.texts}`);
        check(same(to.roles, before.map((name) => name[0])), `${place}: roles ${to.roles}`);
        check(same(to.hit, wrong), `${place}: ${to.hit}`);
        const says = await told(page);
        check(says.includes(`${wrong.length} of ${before.length} rows`), says);
        check(says.includes(`${Math.round(100 * pair.change)} %`), says);
        const output = await strip.nth(1).innerText();
        check(output.startsWith(wrong.length ? "✗" : "✓"), `${place}: ${output}`);
        await press(page, "b");
      }
    }
    check(page.faults.length === 0, page.faults.join());
  },

  async "each row goes where the recording says, and back"(check) {
    const page = await ready();
    for (const run of [runs[0], runs[3]]) {
      const pair = run.pairs[0];
      await choose(page, run, pair);
      await press(page, "Home");
      const rows = run.layouts[pair.source];
      for (let row = 0; row < rows.length; row += 1) {
        if (row) await press(page, "Space");
        const there = run.layouts[pair.target].indexOf(rows[row]);
        const [from, to] = await look(page);
        check(from.cursor === row && to.cursor === there, `${run.name} row ${row}: ${to.cursor}`);
        const says = await told(page);
        check(says.startsWith(`Row ${row} is ${run.names[rows[row]]}`), says);
        check(says.endsWith(`It goes to row ${there}.`), says);
      }
      await focus(page, 1);
      await press(page, "ArrowUp", "ArrowLeft");
      const [from, to] = await look(page);
      check(run.layouts[pair.target][to.cursor] === rows[from.cursor], `${to.cursor} ← ${from.cursor}`);
    }
  },

  async "X swaps the layouts, and a layout brings a run that has it"(check) {
    const page = await ready();
    const chosen = () => page.evaluate(() =>
      [...document.querySelectorAll("select")].map((s) => s.selectedOptions[0].text).join());
    await choose(page, runs[0], runs[0].pairs[1]);
    await press(page, "x");
    check(await chosen() === "4 heads,(h d p),(p h d)", await chosen());
    await page.locator("select").nth(1).selectOption("(g p d)");
    check(await chosen() === "4 heads, 2 key heads,(g p d),(p h d)", await chosen());
    check(await page.locator(".attn-stage table").count() === 0, "it shows the traffic of another run");
    await choose(page, runs[1], runs[1].pairs[0]);
    const tables = await page.locator(".attn-stage table").allInnerTexts();
    const { launches, bytes, sectors } = runs[1].traffic;
    for (const n of [...launches, ...bytes]) check(tables[0].includes(n), tables[0]);
    for (const n of Object.values(sectors)) check(tables[1].includes(n), tables[1]);
    check(E === 8, "the squares are not in lines of E");
  },

  async "the prediction is asked once a pair, and its answer shown"(check) {
    const page = await ready();
    await press(page, "p", "Enter");
    const text = await page.locator(".attn-stage").innerText();
    const { options, answer } = runs[0].pairs[0].question;
    check(text.includes(`You predicted ${options[0]}; the run says ${options[answer]}`), text);
    await press(page, "p");
    check((await told(page)).startsWith("Nothing is left"), await told(page));
    await press(page, "b", "x", "p");
    check((await page.locator(".attn-card").innerText()).includes("for one in (p h d)"), "it does not ask again");
  },
});
