/**
 * F7, the flash theatre: one recorded run of the flash loop, tile by tile.
 *
 * Data: `flash_theatre.v1`, as `attention_lab.steps.flash_theatre` writes it.
 */
import { chip, decimal, h } from "./base.js";
import { extents, isLast, meeting } from "./theatre_data.js";
import { theatre } from "./theatre_stage.js";
import {
  WIDE, colored, exact, kept, largest, names, perQuery, plain, shade, table,
} from "./theatre_tables.js";

/** What a row kept before the tile at a step, as [max, sum]; null at first. */
export function before(run, at, row) {
  const isFirst = at === 0 || run.tiles[at - 1][0] !== run.tiles[at][0];
  return isFirst ? null : [run.row_max[at - 1][row], run.row_sum[at - 1][row]];
}

/** In which rows the maximum grew in the tile at a step. */
export function grown(run, at) {
  return run.row_max[at].map((x, row) => {
    const old = before(run, at, row)?.[0];
    return old !== undefined && (old === null ? x !== null : x > old);
  });
}

/** The question about a tile, with its recorded answer. */
export function question(run, at) {
  const alphas = run.rescale[at];
  if (before(run, at, 0) === null) {
    return {
      text: `Next, ${meeting(run, at)}, their first tile. What is α, the ` +
        "factor for what they kept before?",
      options: ["0", "between 0 and 1", "1"],
      answer: alphas.every((a) => a === 0) ? 0 : alphas.every((a) => a === 1) ? 2 : 1,
    };
  }
  return {
    text: `Next, ${meeting(run, at)}. In how many of the ${alphas.length} rows does ` +
      "the maximum grow, so that what was kept must shrink?",
    options: ["0", ...alphas.map((_, n) => String(n + 1))],
    answer: grown(run, at).filter(Boolean).length,
  };
}

/** What happened in the tile at a step. */
export function story(run, at) {
  const alphas = run.rescale[at];
  let row = 0; // the query that changed most speaks for the tile
  let what = "nothing was kept before, so α = 0.";
  if (before(run, at, 0) !== null) {
    const many = grown(run, at).filter(Boolean).length;
    row = many ? alphas.indexOf(Math.min(...alphas)) : 0;
    what = many
      ? `the maximum grows in ${many} of ${alphas.length} rows; what is ` +
        "kept there shrinks."
      : "no maximum grows, so α = 1 and nothing shrinks.";
  } else if (alphas.some((a) => a !== 0)) {
    what = "the loop takes a maximum of 0 for something it has seen.";
  }
  return `${what} Query ${extents(run, at).L[0] + row}: new max ` +
    `${decimal(run.row_max[at][row])}, α ${decimal(alphas[row])}, sum ` +
    `${decimal(run.row_sum[at][row])}.` +
    (isLast(run, at) ? " It was their last tile: divide and store." : "");
}

/** The tables of one step: scores, what is kept, acc; at last the result. */
export function tables(run, at) {
  const isStored = isLast(run, at);
  const old = (n) => (row) => plain((before(run, at, row) ??
    [run.slip === "max_starts_at_zero" ? 0 : null, 0])[n]);
  const now = (part) => (row) =>
    kept(run, part, at, row, part !== "row_sum" && grown(run, at)[row]);
  return [
    shade(run, "scores", at, "scores"),
    perQuery(run, at, "kept per query", [["max", 48, old(0)], ["→ max", 48, now("row_max")],
      ["α", 34, now("rescale")], ["sum", 42, old(1)], ["→ sum", 46, now("row_sum")]]),
    shade(run, "acc", at, "acc: the mix so far"),
    perQuery(run, at, "max + ln sum", [["log-sum-exp", 88, (row) => (isStored
      ? kept(run, "lse", at, row) : h("td", { class: "attn-num" }))]]),
    shade(run, "out", at, "output = acc ÷ sum", isStored),
  ];
}

/** What is known before a prediction: the maxima so far, the new scores. */
export function arriving(run, at) {
  const keys = names(run, at, "S");
  const wide = largest(run.scores);
  return h("div", { class: "attn-scroll", ...(keys.length > 4 && {
    tabindex: "0", role: "group", "aria-label": "what arrives",
  }) }, table(["what arrives ", chip("S")],
    [["max", 50], ...keys.map((name) => [name, WIDE])],
    names(run, at, "L").map((name, row) => [name,
      plain(before(run, at, row)?.[0] ?? null),
      ...run.scores[at].slice(row * keys.length, (row + 1) * keys.length)
        .map((x) => colored(x, wide, x, undefined, exact(x)))])));
}

export const PLAY = {
  name: "flash_theatre",
  schema: "flash_theatre.v1",
  parts: { scores: "LS", row_max: "L", rescale: "L", row_sum: "L", acc: "LD" },
  results: { out: "LD", lse: "L" },
  errors: { output: "output", lse: "log-sum-exp" },
  rival: "three kernels",
  square: "scores and weights",
  tables, question, story, arriving,
};

export default theatre(PLAY);
