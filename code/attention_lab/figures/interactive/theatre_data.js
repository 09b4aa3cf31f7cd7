/**
 * What a flash theatre knows of its data, without drawing: checks, counts,
 * sentences, the question before a tile and the verdicts after a run.
 */
import { Refusal, decimal, within } from "./base.js";

export const SCHEMA = "flash_theatre.v1";
export const PARTS = ["scores", "row_max", "rescale", "row_sum", "acc"];
export const MOST_TILE = 8;
/** Two rounded numbers that differ by more are different numbers. */
export const ROUNDING = 0.00011;

/**
 * Check what a model holds.
 * @returns the runs, each with the right run of the same input beside it
 * @throws {Refusal} with a sentence
 */
export function readTheatre(state) {
  if (state?.schema !== SCHEMA) {
    throw new Refusal(`it needs data of schema ${SCHEMA}, not ${state?.schema}.`);
  }
  const { runs, D, slips } = state;
  if (!Array.isArray(runs) || !runs.length || runs[0].slip) {
    throw new Refusal("the recording holds no right run.");
  }
  if (!(D >= 1 && D <= MOST_TILE)) {
    throw new Refusal(`axis D has size ${D}; at most ${MOST_TILE} can be drawn.`);
  }
  for (const run of runs) check(run, D);
  const read = runs.map((run) => ({
    ...run,
    D,
    visits: Object.fromEntries(run.tiles.map((tile, at) => [tile, at])),
    slipName: run.slip && slips[run.slip].name,
    says: run.slip && slips[run.slip].says,
  }));
  for (const run of read) {
    run.right = read.find((other) => !other.slip && other.name === run.name);
    if (!run.right) throw new Refusal(`the run ${run.name} has no right loop.`);
  }
  return read;
}

/** Check one run: every list is as long as its tile, every number a number. */
export function check(run, D) {
  for (const axis of ["TILE_L", "TILE_S"]) {
    if (!(run[axis] >= 1 && run[axis] <= MOST_TILE)) {
      throw new Refusal(`${axis} = ${run[axis]} in the run ${run.name}; ` +
        `at most ${MOST_TILE} can be drawn.`);
    }
  }
  if (!run.tiles?.length) throw new Refusal(`the run ${run.name} has no tile.`);
  run.tiles.forEach(([i], at) => {
    const rows = rowsOf(run, i);
    for (const part of PARTS) {
      const list = run[part]?.[at];
      const size = { scores: rows * keysOf(run, at), acc: rows * D }[part] ?? rows;
      if (list?.length !== size) {
        throw new Refusal(`${part} of tile ${at + 1} in the run ${run.name} ` +
          `has ${list?.length ?? "no"} numbers, not ${size}.`);
      }
      if (!list.every((x) => x === null || Number.isFinite(x))) {
        throw new Refusal(`${part} of tile ${at + 1} in the run ${run.name} ` +
          "holds what is not a number.");
      }
    }
  });
}

/** How many queries a row of tiles has. */
export function rowsOf(run, i) {
  return Math.min(run.TILE_L, run.L - i * run.TILE_L);
}

/** How many columns the tile at a step has; a slip may read past the last key. */
export function keysOf(run, at) {
  const [i, j] = run.tiles[at];
  const real = Math.min(run.TILE_S, run.S - j * run.TILE_S);
  return run.slip && run.scores[at]?.length === rowsOf(run, i) * run.TILE_S
    ? run.TILE_S : real;
}

/** "keys 4–7", "query 16". */
export function span(noun, first, many) {
  const plural = noun === "query" ? "queries" : `${noun}s`;
  return many === 1 ? `${noun} ${first}` : `${plural} ${first}–${first + many - 1}`;
}

/** Name the tile at a step: "queries 0–3 meet keys 4–7". */
export function meeting(run, at) {
  const [i, j] = run.tiles[at];
  const keys = Math.min(run.TILE_S, run.S - j * run.TILE_S);
  const rows = rowsOf(run, i);
  return `${span("query", i * run.TILE_L, rows)} ${rows === 1 ? "meets" : "meet"} ` +
    span("key", j * run.TILE_S, keys);
}

/** What a row kept before the tile at a step, as [max, sum]; null at first. */
export function before(run, at, row) {
  const isFirst = at === 0 || run.tiles[at - 1][0] !== run.tiles[at][0];
  return isFirst ? null : [run.row_max[at - 1][row], run.row_sum[at - 1][row]];
}

/** Whether the tile at a step is the last of its queries. */
export function isLast(run, at) {
  return at + 1 === run.tiles.length || run.tiles[at + 1][0] !== run.tiles[at][0];
}

/** In which rows the maximum grew in the tile at a step. */
export function grown(run, at) {
  return run.row_max[at].map((x, row) => {
    const old = before(run, at, row)?.[0];
    return old !== undefined && (old === null ? x !== null : x > old);
  });
}

/**
 * The question about the tile after a step, with its recorded answer.
 * @returns {{text: string, options: string[], answer: number}|null}
 */
export function questionAfter(run, at) {
  const next = at + 1;
  if (next >= run.tiles.length) return null;
  const rows = run.row_max[next].length;
  if (before(run, next, 0) === null) {
    const alphas = run.rescale[next];
    return {
      text: `Next, ${meeting(run, next)}, their first tile. What is α, the ` +
        "factor for what they kept before?",
      options: ["0", "between 0 and 1", "1"],
      answer: alphas.every((a) => a === 0) ? 0 : alphas.every((a) => a === 1) ? 2 : 1,
    };
  }
  return {
    text: `Next, ${meeting(run, next)}. In how many of the ${rows} rows does ` +
      "the maximum grow, so that what was kept must shrink?",
    options: Array.from({ length: rows + 1 }, (_, n) => String(n)),
    answer: grown(run, next).filter(Boolean).length,
  };
}

/** Say what happened in the tile at a step; also read aloud. */
export function happened(run, at) {
  const [i, j] = run.tiles[at];
  const first = i * run.TILE_L;
  const alphas = run.rescale[at];
  let row = 0; // the query that changed most speaks for the tile
  let story = "nothing was kept before, so α = 0.";
  if (before(run, at, 0) !== null) {
    const many = grown(run, at).filter(Boolean).length;
    row = many ? alphas.indexOf(Math.min(...alphas)) : 0;
    story = many
      ? `the maximum grows in ${many} of ${alphas.length} rows; what is ` +
        "kept there shrinks."
      : "no maximum grows, so α = 1 and nothing shrinks.";
  } else if (alphas.some((a) => a !== 0)) {
    story = "the loop takes a maximum of 0 for something it has seen.";
  }
  const end = isLast(run, at) ? " It was their last tile: divide and store." : "";
  const n = differences(run, at);
  const off = run.slip
    ? ` ${n ? n : "No"} number${n === 1 ? "" : "s"} here differ${n === 1 ? "s" : ""} from the right loop.` : "";
  return `Tile (${i}, ${j}): ${story} Query ${first + row}: new max ` +
    `${decimal(run.row_max[at][row])}, α ${decimal(alphas[row])}, sum ` +
    `${decimal(run.row_sum[at][row])}.${end}${off}`;
}

/** Whether two recorded numbers differ by more than their rounding. */
export function differ(x, y) {
  return x === null || y === null ? x !== y : Math.abs(x - y) > ROUNDING;
}

/** The number of a part that the right loop had in the same place. */
export function rightValue(run, part, at, row, column, width) {
  const same = run.right.visits[run.tiles[at]];
  if (part === "scores") {
    const keys = keysOf(run.right, same);
    return column < keys ? run.right.scores[same][row * keys + column] : undefined;
  }
  return run.right[part][same][row * width + column];
}

/** How many numbers of a state differ from the right loop's. */
export function differences(run, at) {
  const rows = run.row_max[at].length;
  let many = 0;
  for (const [part, width] of [["row_max", 1], ["row_sum", 1], ["acc", run.D]]) {
    for (let n = 0; n < rows * width; n += 1) {
      const [row, column] = [Math.floor(n / width), n % width];
      const right = rightValue(run, part, at, row, column, width);
      many += differ(run[part][at][n], right);
    }
  }
  return many;
}

/** What was checked on a run. */
export function verdictsOf(run, seed, dtype) {
  const source = `${dtype} loop, seed ${seed}`;
  const strip = [["output", "output"], ["log-sum-exp", "lse"]].map(([label, key]) =>
    within(`${label} against the reference`, run[`${key}_error`],
      run[`${key}_bound`], source));
  const moved = run.traffic;
  if (moved) {
    strip.push({
      label: "traffic, measured ÷ formula",
      passed: moved.total === moved.formula && moved.naive === moved.naive_formula,
      value: (moved.total / moved.formula).toFixed(4),
      held: `${moved.total} of ${moved.formula} numbers; recorded kernel`,
    }, {
      label: "races, bounds, barriers",
      passed: moved.hazards === 0,
      value: moved.hazards ? `${moved.hazards} hazards` : "none found",
      held: "none; recorded kernel",
    });
  }
  return strip;
}

/** Rows and columns of tiles. */
export function sizes(run) {
  return [Math.ceil(run.L / run.TILE_L), Math.ceil(run.S / run.TILE_S)];
}
