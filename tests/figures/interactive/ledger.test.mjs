// Run by tests/figures/scripts.py, which sets STATE to the figure's state.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const { count } = await import(`${home}base.js`);
const { axis, decades } = await import(`${home}plot.js`);
const figure = await import(`${home}ledger.js`);
const state = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const copy = () => structuredClone(state);

test("a whole number is written in groups of three", () => {
  assert.equal(count(152064), "152,064");
  assert.equal(count(528), "528");
});

test("a logarithmic axis has equal steps for equal factors", () => {
  const across = decades("x", -1, 3);
  assert.ok(Math.abs(across.place(10) - 0.5) < 1e-12);
  assert.equal(across.place(1e9), 1);
  assert.equal(across.place(1e-9), 0);
  assert.deepEqual(across.ticks.map(([, text]) => text), ["0.1", "1", "10", "100", "1000"]);
  assert.equal(decades("x", 4, 5).ticks[0][1], "10⁴");
  assert.equal(axis(0, 4, "x", []).place(1), 0.25);
});

test("the answer to each question is what the counts say", () => {
  const [setting] = figure.readLedger(state);
  const moved = setting.entries.map((row) => figure.total(row[0]));
  for (let i = 0; i + 1 < moved.length; i += 1) {
    const { answer, options } = figure.questionAt(setting, i, 0);
    const [here, next] = [moved[i], moved[i + 1]];
    assert.equal(options[answer], next < here ? "fewer" : next > here ? "more" : "as many");
  }
  assert.equal(figure.questionAt(setting, moved.length - 1, 0), null);
});

test("with one query all tiles move as many numbers", () => {
  const decode = state.settings.find((s) => s.L === 1);
  const { answer, options } = figure.questionAt(decode, 2, 1);
  assert.equal(options[answer], "as many");
});

test("verdicts hold a recording against its formula, number by number", () => {
  const entry = state.settings[0].entries[0][0];
  const checked = (change) => {
    const spoilt = structuredClone(entry);
    change(spoilt.counted[0]);
    return figure.verdictsOf(state, spoilt, 0).map((v) => v.passed);
  };
  assert.ok(checked(() => {}).every(Boolean));
  assert.deepEqual(checked((c) => { c.moved[0] += 1; c.moved[1] -= 1; }).slice(0, 2), [false, true]);
  assert.deepEqual(checked((c) => { c.bytes += 4; }).slice(0, 2), [false, true]);
  assert.deepEqual(checked((c) => { c.flops += 2; }).slice(0, 2), [true, false]);
});

test("what was not recorded has no verdict of its own", () => {
  const bound = state.settings[0].entries.at(-1)[0];
  assert.equal(figure.verdictsOf(state, bound, 0).length, state.checked.length);
});

for (const [fault, spoil, says] of [
  ["another schema", (s) => { s.schema = "ledger.v2"; }, /ledger\.v1, not ledger\.v2/],
  ["no table", (s) => { s.settings = []; }, /is empty/],
  ["a missing row", (s) => { s.settings[2].entries.pop(); }, /one query.*280 numbers, not 336/],
  ["a missing number", (s) => { s.settings[0].entries[1][1].moved[2] = null; }, /335 numbers, not 336/],
  ["text for a number", (s) => { s.settings[0].entries[1][1].intensity[0] = "1"; }, /335 numbers/],
  ["too many columns", (s) => { s.settings[0].S.push(1, 2); }, /axis S .* size 6; at most 4/],
]) {
  test(`${fault} is refused with a sentence`, () => {
    const spoilt = copy();
    spoil(spoilt);
    assert.throws(() => figure.readLedger(spoilt), (e) =>
      e.constructor.name === "Refusal" && says.test(e.message));
  });
}
