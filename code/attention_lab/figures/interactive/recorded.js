/**
 * What figures know of a recording (`recording.v1`), without drawing: checks,
 * its steps as objects, names of threads and elements.
 */
import { Refusal } from "./base.js";

/** The numbers of runs [start, step, count, …]. */
export function unroll(runs) {
  const all = [];
  for (let n = 0; n < runs.length; n += 3) {
    for (let k = 0; k < runs[n + 2]; k += 1) all.push(runs[n] + k * runs[n + 1]);
  }
  return all;
}

/**
 * Check a recording.
 * @returns its steps, one object for each row of its events
 * @throws {Refusal} with a sentence
 */
export function readSteps(run, granularity) {
  if (run?.schema !== "recording.v1") {
    throw new Refusal(`it needs a recording.v1, not ${run?.schema}.`);
  }
  const { columns, data = [], granularity: found } = run.events ?? {};
  if (found !== granularity) {
    throw new Refusal(`it needs accesses by ${granularity}, not by ${found}.`);
  }
  if (!data[0]?.length) throw new Refusal("the recording holds no access.");
  data.forEach((column, k) => {
    if (column.length !== data[0].length) {
      throw new Refusal(`${columns[k]} has ${column.length} rows, not ${data[0].length}.`);
    }
    if (!column.flat(9).every(Number.isInteger)) {
      throw new Refusal(`${columns[k]} holds what is not a whole number.`);
    }
  });
  return data[0].map((_, n) =>
    Object.fromEntries(columns.map((name, k) => [name, data[k][n]])));
}

/** The indices of a number that counts the last size fastest. */
export function indices(number, sizes) {
  return sizes.reduceRight(([rest, index], size) =>
    [Math.floor(rest / size), [rest % size, ...index]], [number, []])[1];
}

/** "x[3, 0]" */
export function elementName(memory, element) {
  return `${memory.label}[${indices(element, memory.shape).join(", ")}]`;
}

/** "5", or "(1, 1)" where the launch has several axes; x runs fastest. */
export function who(number, [x, y, z]) {
  const index = indices(number, [z, y, x]).reverse();
  return y * z > 1 ? `(${index.slice(0, z > 1 ? 3 : 2).join(", ")})` : `${number}`;
}
