/**
 * What a theatre knows of its data, without drawing: checks, names of places,
 * the comparison with the right loop, the verdicts after a run. What is shown
 * is a play, described in `theatre_stage.js`.
 */
import { Refusal, checkList, checkSize, readRuns, within } from "./base.js";

export const MOST_TILE = 8;
/** Two rounded numbers that differ by more are different numbers. */
export const ROUNDING = 0.00011;

/**
 * Check what a model holds. A run with a slip may leave out what it shares
 * with the right run of its name; results are cut into tiles like parts.
 * @returns the runs, each with the right run of the same input beside it
 * @throws {Refusal} with a sentence
 */
export function readTheatre(state, { schema, parts, results }) {
  const runs = readRuns(state, schema);
  const { D, slips } = state;
  checkSize("D", D, MOST_TILE);
  const rightOf = (all, run) => all.find((other) => !other.slip && other.name === run.name);
  const read = runs.map((own) => {
    const right = rightOf(runs, own);
    if (!right) throw new Refusal(`the run ${own.name} has no right loop.`);
    const run = { ...right, ...own, D, parts, axes: { ...parts, ...results } };
    const { tiles, slip } = run;
    for (const axis of ["TILE_L", "TILE_S"]) checkSize(axis, run[axis], MOST_TILE);
    if (!tiles?.length) throw new Refusal(`the run ${run.name} has no tile.`);
    run.visits = Object.fromEntries(tiles.map((tile, at) => [tile, at]));
    run.slipName = slip && slips[slip].name;
    run.says = slip && slips[slip].says;
    for (const [part, axes] of Object.entries(run.axes)) {
      const whole = run[part];
      run[part] = tiles.map((_, at) => {
        const [[first, many], width] = [extents(run, at)[axes[0]], widthOf(run, part, at)];
        const list = part in parts ? whole?.[at]
          : whole?.slice(first * width, (first + many) * width);
        checkList(`${part} of tile ${at + 1} in the run ${run.name}`,
          list?.map((x) => x ?? 0), many * width);
        return list;
      });
    }
    return run;
  });
  for (const run of read) run.right = rightOf(read, run);
  return read;
}

/** Where each axis of the tile at a step begins, and how long it is there. */
export function extents(run, at) {
  const [L, S] = ["L", "S"].map((axis, n) => {
    const [size, first] = [run[`TILE_${axis}`], run.tiles[at][n] * run[`TILE_${axis}`]];
    return [first, Math.min(size, run[axis] - first)];
  });
  // A slip may read past the last key.
  if (run.slip && run.scores?.[at]?.length === L[1] * run.TILE_S) S[1] = run.TILE_S;
  return { L, S, D: [0, run.D] };
}

/** How many columns a part of the tile at a step has. */
export function widthOf(run, part, at) {
  return extents(run, at)[run.axes[part][1]]?.[1] ?? 1;
}

/** "keys 4–7", "query 16". */
export function span(noun, [first, many]) {
  const plural = noun === "query" ? "queries" : `${noun}s`;
  return many === 1 ? `${noun} ${first}` : `${plural} ${first}–${first + many - 1}`;
}

/** Name the tile at a step: "queries 0–3 meet keys 4–7". */
export function meeting({ right, tiles }, at) {
  const { L, S } = extents(right, right.visits[tiles[at]]);
  return `${span("query", L)} ${L[1] === 1 ? "meets" : "meet"} ${span("key", S)}`;
}

/** Whether the tile at a step is the last of its row (axis 0) or column (1). */
export function isLast({ tiles }, at, axis = 0) {
  return tiles.slice(at + 1).every((tile) => tile[axis] !== tiles[at][axis]);
}

/** Whether two recorded numbers differ by more than their rounding. */
export function differ(x, y) {
  return x === null || y == null ? x !== y : Math.abs(x - y) > ROUNDING;
}

/** The number of a part that the right loop had in the same place. */
export function rightValue(run, part, at, n) {
  const same = run.right.visits[run.tiles[at]];
  const [own, width] = [widthOf(run, part, at), widthOf(run.right, part, same)];
  const column = n % own;
  return column < width
    ? run.right[part][same][(n - column) / own * width + column] : undefined;
}

/** How many numbers of the tile at a step differ from the right loop's. */
export function differences(run, at) {
  return Object.keys(run.parts).flatMap((part) =>
    run[part][at].filter((x, n) => differ(x, rightValue(run, part, at, n)))).length;
}

/** Say what happened in the tile at a step; also read aloud. */
export function happened({ story }, run, at) {
  return `Tile (${run.tiles[at].join(", ")}): ${story(run, at)}` + (run.slip
    ? ` Numbers here that differ from the right loop: ${differences(run, at)}.` : "");
}

/** What was checked on a run. */
export function verdictsOf({ errors }, run, source) {
  const strip = Object.entries(errors).map(([key, label]) =>
    within(`${label} against the reference`, run[`${key}_error`], run[`${key}_bound`], source));
  const moved = run.traffic;
  if (moved) {
    strip.push({
      label: "traffic, measured ÷ formula",
      passed: moved.total === moved.formula && moved.naive === moved.naive_formula,
      value: (moved.total / moved.formula).toFixed(4),
      held: `${moved.total} of ${moved.formula} numbers; recorded kernels`,
    }, {
      label: "races, bounds, barriers",
      passed: moved.hazards === 0,
      value: moved.hazards ? `${moved.hazards} hazards` : "none found",
      held: "none; recorded kernels",
    });
  }
  return strip;
}
