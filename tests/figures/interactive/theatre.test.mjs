// Run by tests/figures/scripts.py, which sets STATE to a file with
// the recorded runs; `node --test` alone does it too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const base = await import(`${home}base.js`);
const data = await import(`${home}theatre_data.js`);
const { PLAY, ...forward } = await import(`${home}flash_theatre.js`);
const readTheatre = (state) => data.readTheatre(state, PLAY);
const theatre = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const copy = () => structuredClone(theatre);
const find = (runs, name, slip = null) =>
  runs.find((run) => run.name.includes(name) && run.slip === slip);

test("numbers are written as the static picture writes them", () => {
  assert.equal(base.decimal(-0.714), "−0.71");
  assert.equal(base.decimal(-0.001), "0.00");
  assert.equal(base.decimal(null), "−∞");
  assert.deepEqual([0, 0.52, -0.52, -1.26, 12.3, -120.2, null].map(base.short),
    ["0", ".5", "−.5", "−1.3", "12", "−120", "−∞"]);
  assert.deepEqual([0, 1.758e-7, 0.8174, 1.81, null].map(base.errorText),
    ["0", "1.8e−07", "0.82", "1.8", "∞"]);
});

test("the colours are those of the palette, and their ink can be read", () => {
  const cube = (x) => x ** 3;
  const luminance = (style) => { // Ottosson's OKLab, then WCAG
    const [l, c, h] = style.match(/oklch\(([^)]*)\)/)[1].split(" ").map(Number);
    const [a, b] = [c * Math.cos(h * Math.PI / 180), c * Math.sin(h * Math.PI / 180)];
    const [L, M, S] = [
      cube(l + 0.3963377774 * a + 0.2158037573 * b),
      cube(l - 0.1055613458 * a - 0.0638541728 * b),
      cube(l - 0.0894841775 * a - 1.291485548 * b)];
    const rgb = [
      4.0767416621 * L - 3.3077115913 * M + 0.2309699292 * S,
      -1.2684380046 * L + 2.6097574011 * M - 0.3413193965 * S,
      -0.0041960863 * L - 0.7034186147 * M + 1.707614701 * S]
      .map((x) => Math.min(Math.max(x, 0), 1));
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  };
  for (let x = -1; x <= 1; x += 0.005) {
    const style = base.valueStyle(x);
    const light = luminance(style);
    const contrast = style.endsWith("#000") ? (light + 0.05) / 0.05 : 1.05 / (light + 0.05);
    assert.ok(contrast >= 4.5, `${x}: ${contrast}`);
  }
});

test("answers are kept, also where the browser keeps nothing", () => {
  const blocked = base.memory("a");
  blocked.set("x", 3); // node has no localStorage
  assert.equal(blocked.get("x"), "3");
  assert.equal(blocked.get("y"), null);
  const store = new Map();
  globalThis.localStorage = {
    getItem: (k) => store.get(k) ?? null, setItem: (k, v) => store.set(k, v),
  };
  base.memory("a").set("x", 5);
  assert.equal(store.get("attention-lab:a:x"), "5");
  assert.equal(base.memory("a").get("x"), "5");
  assert.equal(base.memory("b").get("x"), null);
  globalThis.localStorage = { getItem() { throw new Error("blocked"); } };
  assert.equal(base.memory("a").get("x"), null);
  delete globalThis.localStorage;
});

test("every run has its right loop beside it", () => {
  const runs = readTheatre(copy());
  assert.equal(runs.length, theatre.runs.length);
  for (const run of runs) {
    assert.equal(run.right.slip, null);
    assert.equal(run.right.name, run.name);
    assert.equal(run.slip === null, run.right === run);
  }
});

const bad = {
  "another schema": [(t) => { t.schema = "flash_theatre.v9"; }, /schema flash_theatre\.v1/],
  "no runs": [(t) => { t.runs = []; }, /holds no run/],
  "no tiles": [(t) => { t.runs[0].tiles = []; }, /has no tile/],
  "what is no number": [(t) => { t.runs[0].acc[2][5] = "NaN"; }, /acc of tile 3 .* not a number/],
  "a number too few": [(t) => { t.runs[1].row_sum[0].pop(); }, /row_sum of tile 1 .* 3 numbers, not 4/],
  "a part missing": [(t) => { delete t.runs[0].rescale; }, /rescale of tile 1 .* no numbers/],
  "a result too short": [(t) => { t.runs[0].lse.pop(); }, /lse of tile 13 .* 3 numbers, not 4/],
  "too many channels": [(t) => { t.D = 64; }, /axis D has size 64/],
  "too large a tile": [(t) => { t.runs[0].TILE_S = 16; }, /axis TILE_S has size 16/],
  "a slip without its right loop": [
    (t) => { t.runs.find((r) => r.name.includes("ragged")).name = "x"; },
    /no right loop/],
};
for (const [what, [spoil, says]] of Object.entries(bad)) {
  test(`data with ${what} get a sentence`, () => {
    const state = copy();
    spoil(state);
    assert.throws(() => readTheatre(state), (error) => {
      assert.ok(error instanceof base.Refusal);
      assert.match(error.message, says);
      return true;
    });
  });
}
test("nothing at all gets a sentence", () => {
  for (const nothing of [undefined, null, {}, 3]) {
    assert.throws(() => readTheatre(nothing), base.Refusal);
  }
});

test("the answer to each question is what the run recorded", () => {
  for (const run of readTheatre(copy())) {
    for (let at = 0; at + 1 < run.tiles.length; at += 1) {
      const question = forward.question(run, at + 1);
      const isNewRow = run.tiles[at][0] !== run.tiles[at + 1][0];
      if (isNewRow && run.slip !== "max_starts_at_zero") {
        assert.equal(question.options[question.answer], "0");
      } else if (!isNewRow) {
        const shrunk = run.rescale[at + 1].filter(
          (a, row) => a < 1 && run.row_max[at][row] !== run.row_max[at + 1][row]);
        assert.equal(question.options[question.answer], String(shrunk.length));
      }
    }
  }
});

test("a right run differs nowhere, a wrong one somewhere", () => {
  for (const run of readTheatre(copy())) {
    const many = run.tiles.map((_, at) => data.differences(run, at));
    const all = many.reduce((a, b) => a + b);
    assert.equal(all > 0, run.slip !== null, `${run.name} ${run.slip}`);
  }
});

test("numbers that are right in a wrong loop are not marked", () => {
  const runs = readTheatre(copy());
  const sum = find(runs, "16 × 16, tiles 4 × 4", "sum_not_rescaled");
  sum.tiles.forEach((_, at) => {
    for (const part of ["row_max", "rescale", "acc"]) {
      sum[part][at].forEach((x, n) =>
        assert.ok(!data.differ(x, sum.right[part][at][n])));
    }
  });
});

test("columns behind the last key are known as such", () => {
  const runs = readTheatre(copy());
  const right = find(runs, "ragged tiles 4 × 4");
  const stale = find(runs, "ragged tiles 4 × 4", "stale_tile");
  assert.equal(data.widthOf(right, "scores", 3), 1);
  assert.equal(data.widthOf(stale, "scores", 3), 4);
  assert.equal(data.rightValue(stale, "scores", 3, 1), undefined);
  assert.equal(data.rightValue(stale, "scores", 3, 4), right.scores[3][1]);
  assert.equal(data.meeting(stale, 3), "queries 0–3 meet key 12");
  assert.equal(data.meeting(right, 3), "queries 0–3 meet key 12");
});

test("the verdicts say what was measured", () => {
  const runs = readTheatre(copy());
  const texts = (run) => data.verdictsOf(PLAY, run, "float32 loop, seed 0");
  const right = texts(runs[0]);
  assert.ok(right.every((v) => v.passed));
  assert.equal(right.find((v) => v.label.startsWith("traffic")).value, "1.0000");
  for (const run of runs.filter((r) => r.slip)) {
    const [output] = texts(run);
    assert.equal(output.passed, false);
    assert.equal(output.value, `off by ${base.errorText(run.output_error)}`);
  }
  const lost = find(runs, "−120", "max_starts_at_zero");
  assert.equal(texts(lost)[1].value, "off by ∞");
  assert.equal(texts(lost)[1].passed, false);
  const more = structuredClone(theatre.runs[0]);
  more.traffic.total += 1;
  assert.equal(texts(more)[2].passed, false);
});

test("the sentence of a step names its tile, a query and its numbers", () => {
  const [run] = readTheatre(copy());
  assert.match(data.happened(PLAY, run, 0), /^Tile \(0, 0\): nothing was kept before/);
  run.tiles.forEach(([i, j], at) => {
    const told = data.happened(PLAY, run, at);
    const [, query, max, alpha, sum] = told.match(
      /Query (\d+): new max (\S+), α (\S+), sum (\S+)\./);
    const row = Number(query) - i * run.TILE_L;
    assert.equal(max, base.decimal(run.row_max[at][row]));
    assert.equal(alpha, base.decimal(run.rescale[at][row]));
    assert.equal(sum, base.decimal(run.row_sum[at][row]));
    assert.equal(told.includes("divide and store"), j === 3);
  });
});
