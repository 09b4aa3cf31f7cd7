// Run by tests/figures/scripts.py, which sets STATE to the figure's
// state.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const figure = await import(`${home}saturation.js`);
const state = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const { widths } = state;
const views = figure.readSaturation(state);

test("all widths come first, then every mask with its four states", () => {
  assert.equal(views.length, 6);
  assert.equal(views[0].all.length, 2 * widths.length);
  for (const view of views.slice(1)) assert.equal(view.all.length, 4);
});

test("the second half of every view is the mistake", () => {
  assert.ok(figure.called(widths, views[0].all[0], 0).endsWith("÷ √D"));
  assert.ok(figure.called(widths, views[0].all[6], 6).endsWith("raw"));
  for (const { all } of views.slice(1)) {
    assert.deepEqual(all.map((m) => m.flipped), [false, false, true, true]);
  }
});

test("the answer about entropy is what the runs say", () => {
  for (let at = 0; at < 11; at += 1) {
    const { answer, options } = figure.questionAt(views[0], widths, at);
    const change = views[0].all[at + 1].entropy - views[0].all[at].entropy;
    const right = Math.abs(change) <= 0.1 ? "stays within 0.1" : change < 0 ? "falls" : "rises";
    assert.equal(options[answer], right);
  }
  assert.equal(figure.questionAt(views[0], widths, 11), null);
});

test("the answer about gradients counts the lost ones", () => {
  const causal = views.find((v) => v.name === "causal, upper left");
  const answers = [0, 1, 2].map((at) => figure.questionAt(causal, widths, at))
    .map(({ answer, options }) => options[answer]);
  assert.deepEqual(answers, ["all", "none", "none"]);
  assert.equal(figure.lost([null, 0, 1, null]), 2);
});

for (const [fault, spoil, says] of [
  ["another schema", (s) => { s.schema = "saturation.v2"; }, /saturation\.v1, not saturation\.v2/],
  ["no run", (s) => { s.runs = []; }, /is empty/],
  ["no mask", (s) => { s.masks = []; }, /is empty/],
  ["NaN in a run", (s) => { s.runs[0][3].std = null; }, /D 64, ÷ √D has 43 numbers, not 44/],
  ["a missing bar", (s) => { s.runs[1][0].counts.pop(); }, /D 1, raw has 43 numbers/],
  ["a short mask", (s) => { s.masks[0].keep.pop(); }, /none has 69 numbers, not 70/],
  ["too many keys", (s) => { s.mask_sizes[1] = 8; }, /axis S has size 8; at most 7/],
]) {
  test(`${fault} is refused with a sentence`, () => {
    const spoilt = structuredClone(state);
    spoil(spoilt);
    assert.throws(() => figure.readSaturation(spoilt), (e) =>
      e.constructor.name === "Refusal" && says.test(e.message));
  });
}
