// The way back in a browser, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";
import { choose, decimal, focusBoard, look, near, strip } from "./theatres.mjs";

const state = JSON.parse(readFileSync(settings.state, "utf8"));
const rights = state.runs.filter((run) => !run.slip);
const wrongs = state.runs.filter((run) => run.slip)
  .map((run) => ({ ...rights.find((right) => right.name === run.name), ...run }));
const CAPTIONS = {
  "scores L × S": "scores", "P L × S": "weights", "dP L × S": "d_weights",
  "dS L × S": "d_scores", "dV S × D": "dv", "dK S × D": "dk", "dQ ÷ scale L × D": "dq_sum",
};
const PAGE = "flash_theatre_backward-light.html";
/** A number as a coloured square writes it. */
const short = (x) => (x === null ? "−∞" : x === 0 ? "0"
  : x.toFixed(Math.abs(x) < 0.995 ? 2 : Math.abs(x) < 9.95 ? 1 : 0)
    .replace(/^-(0\.00)$/, "$1").replace("-", "−").replace("0.", "."));

/** Walk the first tiles of a run and hold them to the data. */
async function walk(page, run, check, many = run.tiles.length) {
  await page.keyboard.press("Home");
  for (let at = 0; at < many; at += 1) {
    if (at) await page.keyboard.press("Space");
    const place = `${run.name} ${run.slip} tile ${at + 1}`;
    const [i, j] = run.tiles[at];
    const { says, current, tables } = await look(page);
    const { kept } = tables;
    check(says.startsWith(`Tile (${i}, ${j}): `), `${place}: says ${says}`);
    check(current === String(at + 1), `${place}: the board is at ${current}`);
    const expected = kept.map((_, row) => ["lse", "row_dot"]
      .map((part) => decimal(run[part][i * run.TILE_L + row])));
    check(`${kept}` === `${expected}`, `${place}: ${kept} is not ${expected}`);
    for (const [caption, part] of Object.entries(CAPTIONS)) {
      const shown = tables[caption].flat();
      check(`${shown}` === `${run[part][at].map(short)}`, `${place}: ${part} is ${shown}`);
    }
    const rows = tables["dQ L × D"];
    const isDone = !run.tiles.slice(at + 1).some(([row]) => row === i);
    const first = i * run.TILE_L * state.D;
    const stored = run.dq.slice(first, first + rows.flat().length).map(short);
    check(`${rows.flat()}` === `${isDone ? stored : stored.map(() => "")}`, `${place}: dQ is ${rows}`);
  }
}

await report({
  async "every way back is walked by keyboard and ends at the reference"(check) {
    const page = await open(PAGE);
    for (const [place, run] of rights.entries()) {
      await choose(page, "recorded run", place);
      await walk(page, run, check);
      const lines = await strip(page);
      ["dq", "dk", "dv"].forEach((key, n) =>
        check(lines[n].startsWith("✓") && near(lines[n], run[`${key}_error`]), lines[n]));
      check(lines[3].startsWith("✓") && lines[3].includes("1.0000"), lines[3]);
      check(lines[4].startsWith("✓"), lines[4]);
      const { total, before, naive, square } = run.traffic;
      const meter = await page.locator(".attn-traffic").innerText();
      check(meter.includes(`so far: ${total} of ${total}, of these ${before} for D and dQ`), meter);
      check(meter.includes(`stored weights: ${naive}, of these ${square} for P`), meter);
    }
    check(page.faults.length === 0, page.faults.join());
  },

  async "every mistake shows the errors of its run"(check) {
    const page = await open(PAGE);
    for (const [place, run] of wrongs.entries()) {
      await choose(page, "mistake", place + 1);
      await walk(page, run, check, 3);
      const lines = await strip(page);
      ["dq", "dk", "dv"].forEach((key, n) => {
        const isRight = run[`${key}_error`] <= run[`${key}_bound`];
        check(lines[n].startsWith(isRight ? "✓" : "✗") && near(lines[n], run[`${key}_error`]),
          `${run.slip}: ${lines[n]}`);
      });
      check(await page.locator(".attn-off").count() > 0, `${run.slip}: nothing is marked`);
      const text = await page.locator(".attn-stage").innerText();
      check(text.includes(state.slips[run.slip].says), `${run.slip}: no sentence`);
    }
  },

  async "the walk goes down the columns, and the question asks for dS"(check) {
    const page = await open(PAGE);
    await focusBoard(page);
    const at = async () => (await look(page)).says.match(/Tile \((\d), (\d)\)/).slice(1).join("");
    for (const [key, expected] of [["Space", "10"], ["Space", "20"], ["Space", "01"], ["PageUp", "20"], ["ArrowRight", "21"], ["Home", "00"]]) {
      await page.keyboard.press(key);
      check(await at() === expected, `${key}: at ${await at()}, not ${expected}`);
    }
    await page.keyboard.press("p");
    await page.keyboard.press("Enter"); // the first answer: below 0
    const [run] = rights;
    const heaviest = run.weights[1].indexOf(Math.max(...run.weights[1]));
    const sign = ["below 0", "0", "above 0"][1 + Math.sign(run.d_scores[1][heaviest])];
    const says = `You predicted below 0; the run says ${sign}`;
    const text = await page.locator(".attn-stage").innerText();
    check(text.includes(says), text);
  },
});
