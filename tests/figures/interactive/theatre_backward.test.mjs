// Run by tests/figures/scripts.py, which sets STATE to a file with
// the recorded runs; `node --test` alone does it too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const base = await import(`${home}base.js`);
const data = await import(`${home}theatre_data.js`);
const { PLAY, heaviest, question } = await import(`${home}flash_theatre_backward.js`);
const theatre = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const copy = () => structuredClone(theatre);
const read = () => data.readTheatre(copy(), PLAY);
const find = (slip) => read().find((run) => run.slip === slip);

test("a run with a slip is completed from the right run beside it", () => {
  const lost = find("scale_lost");
  const stored = theatre.runs.find((run) => run.slip === "scale_lost");
  assert.equal(stored.weights, undefined);
  assert.deepEqual(lost.weights, lost.right.weights);
  assert.notDeepEqual(lost.dk, lost.right.dk);
});

test("results are cut into the queries of each tile", () => {
  for (const run of read()) {
    const stored = theatre.runs.find((r) => r.name === run.name);
    run.tiles.forEach(([i], at) => {
      const { L: [first, many] } = data.extents(run, at);
      assert.equal(first, i * run.TILE_L);
      assert.deepEqual(run.lse[at], stored.lse.slice(first, first + many));
      assert.equal(run.dq[at].length, many * theatre.D);
    });
  }
});

test("each slip spoils the parts that its sentence names", () => {
  const spoilt = (run) => Object.keys(PLAY.parts).filter((part) => run.tiles.some((_, at) =>
    run[part][at].some((x, n) => data.differ(x, data.rightValue(run, part, at, n)))));
  const expected = {
    row_dot_lost: "d_scores,dq_sum,dk", scale_lost: "dk", dk_transposed: "dk",
    scores_for_weights: "dv", max_for_lse: "weights,d_scores,dq_sum,dk,dv",
    causal_ignored: "scores,weights,d_scores,dq_sum,dk,dv",
  };
  for (const [slip, parts] of Object.entries(expected)) {
    assert.equal(`${spoilt(find(slip))}`, parts, slip);
  }
  assert.equal(`${spoilt(read()[0])}`, "");
});

test("the question before the last tile of a column asks what is complete", () => {
  for (const run of read()) {
    run.tiles.forEach(([i, j], at) => {
      if (run.tiles[at + 1]?.[1] === j) return;
      const { text, options, answer } = question(run, at);
      assert.match(text, /last tile of this column/);
      const isRowDone = !run.tiles.slice(at + 1).some(([row]) => row === i);
      assert.equal(options[answer].includes("dQ"), isRowDone, `${run.name} ${at}`);
    });
  }
});

test("any other question asks for the sign of dS at the largest weight", () => {
  let [below, above] = [0, 0];
  for (const run of read()) {
    run.tiles.forEach((_, at) => {
      const { text, options, answer } = question(run, at);
      if (text.includes("last tile")) return;
      const n = run.weights[at].indexOf(Math.max(...run.weights[at]));
      const sign = Math.sign(run.d_scores[at][n]);
      assert.equal(options[answer], ["below 0", "0", "above 0"][1 + sign]);
      assert.ok(text.includes(`will be ${base.decimal(run.weights[at][n])}`), text);
      below += sign < 0;
      above += sign > 0;
    });
  }
  assert.ok(below > 5 && above > 5, `${below} below, ${above} above`);
});

test("what a sentence says of the largest weight was recorded there", () => {
  const run = read().find((r) => r.name.includes("ragged tiles 4 × 3"));
  run.tiles.forEach((_, at) => {
    const { where, weight, dS, lse, D } = heaviest(run, at);
    const [, query, key] = where.match(/query (\d+) on key (\d+)/).map(Number);
    const { L: [top], S: [left, keys] } = data.extents(run, at);
    const n = (query - top) * keys + key - left;
    assert.equal(weight, base.decimal(run.weights[at][n]));
    assert.equal(dS, base.decimal(run.d_scores[at][n]));
    const { lse: all, row_dot } = theatre.runs.find((r) => r.name === run.name);
    assert.equal(lse, base.decimal(all[query]));
    assert.equal(D, base.decimal(row_dot[query]));
  });
});

test("the sentence says when gradients are complete", () => {
  const run = read().find((r) => r.is_causal && !r.slip);
  const told = run.tiles.map((_, at) => data.happened(PLAY, run, at));
  assert.match(told[0], /Complete: dQ of queries 0–3\.$/);
  assert.doesNotMatch(told[1], /dQ of|Complete/);
  assert.match(told[3], /Complete: dK and dV of keys 0–3\.$/);
  assert.match(told.at(-1), /^Tile \(3, 3\).*Complete: dK and dV of key 12; dQ of query 12\.$/);
});

test("the verdicts say which gradients are wrong", () => {
  const signs = (run) => data.verdictsOf(PLAY, run, "a test").slice(0, 3)
    .map((v) => (v.passed ? "✓" : "✗")).join("");
  assert.equal(signs(read()[0]), "✓✓✓");
  const expected = {
    row_dot_lost: "✗✗✓", scale_lost: "✗✗✓", dk_transposed: "✓✗✓",
    scores_for_weights: "✓✓✗", max_for_lse: "✗✗✗", causal_ignored: "✗✗✗",
  };
  for (const [slip, wanted] of Object.entries(expected)) {
    assert.equal(signs(find(slip)), wanted, slip);
  }
  const [, , , traffic, hazards] = data.verdictsOf(PLAY, read()[0], "a test");
  assert.equal(traffic.value, "1.0000");
  assert.ok(traffic.passed && hazards.passed);
  const spoilt = read()[0];
  spoilt.traffic = { ...spoilt.traffic, total: spoilt.traffic.total + 1, hazards: 1 };
  assert.deepEqual(data.verdictsOf(PLAY, spoilt, "a test").slice(3).map((v) => v.passed),
    [false, false]);
});

const bad = {
  "the forward schema": [(t) => { t.schema = "flash_theatre.v1"; }, /flash_theatre_backward\.v1/],
  "a number too few": [(t) => { t.runs[0].dq_sum[2].pop(); }, /dq_sum of tile 3 .* 11 numbers, not 12/],
  "text in a slip": [(t) => { t.runs[1].dk[0][0] = "x"; }, /dk of tile 1 .* not a number/],
  "a result missing": [(t) => { delete t.runs[0].row_dot; }, /row_dot of tile 1 .* no numbers/],
  "a result too short": [(t) => { t.runs[0].dq.pop(); }, /dq of tile 3 .* 11 numbers, not 12/],
};
for (const [what, [spoil, says]] of Object.entries(bad)) {
  test(`data with ${what} get a sentence`, () => {
    const state = copy();
    spoil(state);
    assert.throws(() => data.readTheatre(state, PLAY), (error) => {
      assert.ok(error instanceof base.Refusal);
      assert.match(error.message, says);
      return true;
    });
  });
}
