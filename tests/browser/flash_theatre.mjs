// The flash theatre in a browser, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";
import { choose, decimal, focusBoard, look, near, strip } from "./theatres.mjs";

const state = JSON.parse(readFileSync(settings.state, "utf8"));
const rights = state.runs.filter((run) => !run.slip);
const wrongs = state.runs.filter((run) => run.slip);

const stage = (page) => page.locator(".attn-stage").first();
const told = (page) => page.locator("[role=status]").first().innerText();
/** Walk one run from its first to its last tile and hold it to the data. */
async function walk(page, run, check) {
  await page.keyboard.press("Home");
  for (let at = 0; at < run.tiles.length; at += 1) {
    if (at) await page.keyboard.press("Space");
    const place = `${run.name} ${run.slip} tile ${at + 1}`;
    const [i, j] = run.tiles[at];
    const { says, current, tables } = await look(page);
    const rows = tables["kept per query"];
    check(says.startsWith(`Tile (${i}, ${j}):`), `${place}: says ${says}`);
    check(rows.length === run.row_max[at].length, `${place}: ${rows.length} rows`);
    rows.forEach((cells, row) => {
      const expected = ["row_max", "rescale", "row_sum"].map((part) => decimal(run[part][at][row]));
      check(`${[cells[1], cells[2], cells[4]]}` === `${expected}`,
        `${place} row ${row}: ${cells} is not ${expected}`);
    });
    check(current === String(at + 1), `${place}: the board is at ${current}`);
  }
}

await report({
  async "every right run is walked by keyboard and ends at the reference"(check) {
    const page = await open("flash_theatre-light.html");
    for (const [place, run] of rights.entries()) {
      await choose(page, "recorded run", place);
      await walk(page, run, check);
      const [output, lse, traffic] = await strip(page);
      check(output.startsWith("✓") && near(output, run.output_error), output);
      check(lse.startsWith("✓") && near(lse, run.lse_error), lse);
      check(traffic.startsWith("✓") && traffic.includes("1.0000"), traffic);
      const meter = await stage(page).innerText();
      check(meter.includes(`so far: ${run.traffic.total} of ${run.traffic.total}`), `${run.name}: meter`);
      check(meter.includes(`three kernels: ${run.traffic.naive}`), `${run.name}: naive`);
    }
    check(page.faults.length === 0, page.faults.join());
  },

  async "every mistake shows the error of its run"(check) {
    const page = await open("flash_theatre-light.html");
    for (const [place, run] of wrongs.entries()) {
      await choose(page, "mistake", place + 1);
      await walk(page, run, check);
      const [output, lse] = await strip(page);
      check(output.startsWith("✗") && near(output, run.output_error), output);
      check(near(lse, run.lse_error), lse);
      check(await page.locator(".attn-off").count() > 0, `${run.slip}: nothing is marked`);
      const text = await stage(page).innerText();
      check(text.includes(state.slips[run.slip].says), `${run.slip}: no sentence`);
    }
  },

  async "each key does what the help says"(check) {
    const page = await open("flash_theatre-light.html");
    await focusBoard(page);
    const at = async () => (await told(page)).match(/Tile \((\d), (\d)\)/).slice(1).join("");
    const press = async (key, expected) => {
      await page.keyboard.press(key);
      check(await at() === expected, `${key}: at ${await at()}, not ${expected}`);
    };
    await press("ArrowRight", "01"); await press("ArrowDown", "11");
    const focused = () => page.evaluate(() => document.activeElement.dataset.cell);
    check(await focused() === "1,1", `the focus stays at ${await focused()}`);
    await press("ArrowLeft", "10"); await press("ArrowUp", "00");
    await press("Space", "01"); await press("PageDown", "02"); await press("PageUp", "01");
    check(await focused() === "0,1", `the focus stays at ${await focused()}`);
    await press("End", "33"); await press("Home", "00"); await press("s", "01");
    const cards = page.locator(".attn-card");
    check(await cards.count() === 0, "S leaves the question open");
    await page.keyboard.press("?");
    const help = await cards.innerText();
    for (const key of ["Space", "PgUp", "Home", "P", "S", "B", "?", "Esc"]) check(help.includes(key), `help lacks ${key}`);
    await page.keyboard.press("Escape");
    check(await cards.count() === 0, "Esc leaves the help open");
    await page.keyboard.press("p");
    check((await cards.innerText()).includes("Predict first."), "P asks nothing");
    check((await cards.innerText()).includes("Show me"), "there is no way around the question");
    await page.keyboard.press("Escape");
    await page.keyboard.press("b");
    check((await strip(page))[0].startsWith("✗"), "B makes no mistake");
    await page.keyboard.press("b");
    check((await strip(page))[0].startsWith("✓"), "B does not take it back");
    await page.keyboard.press("Escape");
    check(await page.evaluate(() => document.activeElement === document.body), "Esc does not leave");
  },

  async "a skipped tile says so"(check) {
    const page = await open("flash_theatre-light.html");
    await choose(page, "recorded run", rights.findIndex((run) => run.is_causal));
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    check((await told(page)).includes("skipped"), await told(page));
    check(await page.locator(".attn-stage table").first().isHidden(), "it shows numbers");
    await page.keyboard.press("ArrowDown");
    check(await page.locator(".attn-stage table").first().isVisible(), "the numbers stay away");
  },

  async "a guess is kept and shown beside the result, also after a reload"(check) {
    const page = await open("flash_theatre-light.html");
    await focusBoard(page);
    await page.keyboard.press("p");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter"); // the second answer: 1
    const grown = state.runs[0].row_max[1].filter((x, row) => x > state.runs[0].row_max[0][row]).length;
    const says = `You predicted 1; the run says ${grown}`;
    check((await stage(page).innerText()).includes(says), await stage(page).innerText());
    await page.reload();
    check(!(await stage(page).innerText()).includes("You predicted"), "it tells before the tile");
    await focusBoard(page);
    await page.keyboard.press("s");
    check((await stage(page).innerText()).includes(says), "the guess is lost");
  },
});
