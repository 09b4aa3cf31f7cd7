// Run by tests/figures/scripts.py, which sets STATE to a file with the
// data of a kernel lens.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const home = "../../../code/attention_lab/figures/interactive/";
const base = await import(`${home}base.js`);
const recorded = await import(`${home}recorded.js`);
const lens = await import(`${home}kernel_lens.js`);
const state = JSON.parse(readFileSync(process.env.STATE, "utf8"));
const copy = () => structuredClone(state);

test("runs are read back in their order", () => {
  assert.deepEqual(recorded.unroll([4, 1, 3, 20, 0, 2, 9, -4, 3]),
    [4, 5, 6, 20, 20, 9, 5, 1]);
});

test("threads and elements are named as the recorder names them", () => {
  assert.equal(recorded.who(5, [4, 2, 1]), "(1, 1)");
  assert.equal(recorded.who(5, [8, 1, 1]), "5");
  assert.equal(recorded.who(13, [2, 3, 4]), "(1, 0, 2)");
  assert.equal(recorded.who(1, [1, 4, 1]), "(0, 1)");
  assert.equal(recorded.elementName({ label: "x", shape: [2, 3, 5] }, 23), "x[1, 1, 3]");
});

test("the costs add up to what the recorder counted", () => {
  for (const run of lens.readLens(copy())) {
    for (const row of run.traffic.arrays) {
      const mine = run.steps.filter((s) => s.memory.label === row.array);
      const cost = mine.reduce((sum, s) => sum + s.cost, 0);
      assert.equal(mine.length, row.requests, `${run.name} ${row.array}`);
      assert.equal(cost, row.space === "global" ? row.sectors
        : row.requests + row.bank_conflicts, `${run.name} ${row.array}`);
    }
  }
});

test("a request that touches one more sector costs one more", () => {
  const space = "global";
  assert.equal(lens.costOf({ space }, [0, 1, 7]).cost, 1);
  assert.equal(lens.costOf({ space }, [0, 1, 8]).cost, 2);
  assert.equal(lens.costOf({ space: "shared" }, [0, 32, 64, 64]).cost, 3);
});

test("a block without its barrier has one stretch, with it two", () => {
  const stretches = lens.readLens(copy()).map((run) => run.steps.at(-1).stretch + 1);
  assert.deepEqual(stretches, [2, 1, 1, 2]);
});

test("a thread is marked in its own block only", () => {
  const across = [{ threads: [3, 5], blocks: [0, 2] }];
  assert.deepEqual([0, 1, 2].map((b) => lens.guiltyIn(across, b)), [[3], [], [5]]);
  const waiting = [{ threads: [0, 36], blocks: [1] }, { threads: [], blocks: [] }];
  assert.deepEqual([0, 1].map((b) => lens.guiltyIn(waiting, b)), [[], [0, 36]]);
});

test("data that miss a site are refused", () => {
  const spoilt = copy();
  spoilt.versions[0].recording.events.data[2][0] = 99;
  assert.throws(() => lens.readLens(spoilt), (error) =>
    error instanceof base.Refusal && /with a barrier has no site 99/.test(error.message));
  for (const nothing of [undefined, null, {}, 3]) {
    assert.throws(() => lens.readLens(nothing), base.Refusal);
    assert.throws(() => recorded.readSteps(nothing, "request"), base.Refusal);
  }
});
