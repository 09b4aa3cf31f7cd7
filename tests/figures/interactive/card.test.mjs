// Run by tests/figures/scripts.py, which sets STATE to a file with the
// data of a stage card.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const base = await import(`${home}base.js`);
const card = await import(`${home}stage_card.js`);
const state = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const copy = () => structuredClone(state);

test("the ranges of the elements touched, axis by axis", () => {
  assert.deepEqual(card.spans([2, 3, 5], [16, 17, 22]), ["1", "0–1", "1–2"]);
  assert.deepEqual(card.spans([4], [3]), ["3"]);
});

test("each step is a line of the source and touches what was recorded", () => {
  for (const [k, run] of card.readCard(copy()).entries()) {
    const { recording } = state.kernels[k];
    for (const [n, step] of run.steps.entries()) {
      const numbers = recording.events.data[3][n];
      assert.equal(run.source[step.row][0], recording.sites[numbers[0]].line);
      const touched = [...step.touched.values()]
        .reduce((sum, { read, write }) => sum + read.length + write.length, 0);
      const counts = recording.events.data[4][n].map((runs) =>
        runs.filter((_, place) => place % 3 === 2).reduce((a, b) => a + b));
      assert.equal(touched, counts.reduce((a, b) => a + b));
    }
  }
});

test("data that cannot be drawn get a sentence", () => {
  const spoilt = copy();
  spoilt.kernels[0].recording.events.data[3][0] = [99];
  assert.throws(() => card.readCard(spoilt), base.Refusal);
  for (const nothing of [undefined, null, {}, { schema: "stage_card.v1" }]) {
    assert.throws(() => card.readCard(nothing), base.Refusal);
  }
});
