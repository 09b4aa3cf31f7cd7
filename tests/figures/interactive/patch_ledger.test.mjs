// Run by tests/figures/scripts.py, which sets STATE to a file with
// the recorded runs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const base = await import(`${home}base.js`);
const figure = await import(`${home}patch_ledger.js`);
const ledger = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const copy = () => structuredClone(ledger);
const runs = figure.readLedger(copy());

test("every run has its source and the pixels of its digit", () => {
  assert.equal(runs.length, ledger.runs.length);
  for (const [n, run] of runs.entries()) {
    assert.deepEqual(run.source, ledger.sources[ledger.runs[n].source]);
    assert.deepEqual(run.pixels, ledger.digits[run.source.digit].pixels);
  }
});

test("weights are written in few characters", () => {
  assert.deepEqual([0, 4, 413, 999, 1000, 1483].map(figure.share),
    [".00", ".00", ".41", "1.00", "1.00", "1.48"]);
});

test("a row holds the recorded weights, the largest first", () => {
  for (const run of runs) {
    for (let query = 0; query < 16; query += 1) {
      const { weights, order } = figure.rowOf(run, query);
      assert.equal(weights.length, 16);
      assert.equal(weights[7], run.weights[16 * query + 7]);
      assert.deepEqual([...order].sort((a, b) => a - b), [...Array(16).keys()]);
      order.slice(1).forEach((key, n) => assert.ok(weights[order[n]] >= weights[key]));
    }
  }
});

test("identical keys share alike, and the answer comes from the run", () => {
  const [patches] = runs;
  const [a, b] = patches.source.same;
  for (let query = 0; query < 16; query += 1) {
    const question = figure.questionOf(patches, query);
    assert.ok(question.text.includes(`Patches ${a} and ${b} have identical keys`));
    assert.equal(question.options[question.answer], "both the same");
  }
  for (const [place, by] of [[0, 3], [2, -3]]) {
    const uneven = structuredClone(patches);
    uneven.weights[6 * 16 + a] += by;
    assert.equal(figure.questionOf(uneven, 6).answer, place);
  }
});

test("whether a patch looks at itself most is what the run recorded", () => {
  const answers = new Set();
  for (const run of runs.filter((r) => !r.source.same)) {
    for (let query = 0; query < 16; query += 1) {
      const row = run.weights.slice(16 * query, 16 * query + 16);
      const { options, answer } = figure.questionOf(run, query);
      const isOwn = row.every((w, key) => key === query || w < row[query]);
      if (isOwn) assert.equal(options[answer], "yes");
      if (Math.max(...row) > row[query]) assert.equal(options[answer], "no");
      answers.add(answer);
    }
  }
  assert.equal(answers.size, 2);
});

test("the sentence names the largest shares and the sum", () => {
  for (const run of runs) {
    const { weights, order } = figure.rowOf(run, 5);
    const says = figure.happened(run, 5);
    assert.ok(says.includes(`${figure.share(weights[order[0]])}·v${order[0]} +`));
    assert.ok(says.endsWith(`sum to ${(run.sums[5] / 1000).toFixed(2)}.`));
    assert.equal(says.includes("Mistake"), run.axis === "L");
  }
});

test("right runs hold, the wrong axis fails in sums and outputs only", () => {
  for (const run of runs) {
    const passed = figure.verdictsOf(run, "a test").map((v) => v.passed);
    assert.deepEqual(passed, run.axis === "S" ? [true, true, true] : [false, false, true]);
  }
  for (const key of ["sum", "output", "shuffle"]) {
    for (const error of [1, NaN]) {
      const off = { ...runs[0], [`${key}_error`]: error };
      assert.ok(figure.verdictsOf(off, "a test").some((v) => !v.passed), `${key} ${error}`);
    }
  }
});

test("a patch is painted with its own four pixels", () => {
  const pixels = Array(64).fill(0);
  pixels[8 * 5 + 2] = 16; // row 5, column 2: patch 9, lower left
  const dark = base.rampColors(3, 1)[0], paper = base.rampColors(3, 0)[0];
  assert.ok(figure.patchStyle(pixels, 9, null)
    .includes(`conic-gradient(${paper} 25%,${paper} 0 50%,${dark} 0 75%,${paper} 0)`));
  assert.ok(!figure.patchStyle(pixels, 8, 0.5).includes(dark));
});

test("weights can be read on their colour", () => {
  const light = (l) => l ** 3; // OKLCH lightness of a grey, near enough here
  for (let x = 0; x <= 1; x += 0.01) {
    const [fill, ink] = base.rampColors(2, x);
    const y = light(Number(fill.match(/[\d.]+/)[0]));
    const contrast = ink === "#000" ? (y + 0.05) / 0.05 : 1.05 / (y + 0.05);
    assert.ok(contrast >= 4.5, `${x}: ${contrast}`);
  }
});

const bad = {
  "another schema": [(s) => { s.schema = "patch_ledger.v9"; }, /schema patch_ledger\.v1/],
  "no runs": [(s) => { s.runs = []; }, /holds no run/],
  "a wrong first run": [(s) => { s.runs[0].axis = "L"; }, /not a right one/],
  "a weight too few": [(s) => { s.runs[2].weights.pop(); }, /weights of .* has 255 numbers, not 256/],
  "what is no number": [(s) => { s.sources[1].values[3] = null; }, /values of .* not a number/],
  "no output": [(s) => { delete s.runs[1].out; }, /out of .* has no numbers/],
  "too many channels": [(s) => { s.sources[0].D = 9; }, /axis D has size 9; at most 8/],
  "a run without a source": [(s) => { s.runs[3].source = 99; }, /axis D has size undefined/],
  "an error missing": [(s) => { delete s.runs[4].shuffle_error; }, /errors of .* not a number/],
  "no digits": [(s) => { delete s.digits; }, /pixels of .* has no numbers/],
};
for (const [what, [spoil, says]] of Object.entries(bad)) {
  test(`data with ${what} get a sentence`, () => {
    const state = copy();
    spoil(state);
    assert.throws(() => figure.readLedger(state), (error) => {
      assert.ok(error instanceof base.Refusal, error);
      assert.match(error.message, says);
      return true;
    });
  });
}
