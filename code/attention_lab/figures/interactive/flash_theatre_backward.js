/**
 * F7 in reverse: one recorded backward pass, tile by tile, down the columns.
 *
 * Data: `flash_theatre_backward.v1`, as
 * `attention_lab.steps.flash_theatre_backward` writes it.
 */
import { decimal } from "./base.js";
import { extents, isLast, meeting, span, widthOf } from "./theatre_data.js";
import { theatre } from "./theatre_stage.js";
import { kept, perQuery, shade } from "./theatre_tables.js";

/** Place in RAMPS. */
const WEIGHTS = 2;

/** The largest weight of the tile at a step: where it is, what is known there. */
export function heaviest(run, at) {
  const n = run.weights[at].indexOf(Math.max(...run.weights[at]));
  const [keys, { L, S }] = [widthOf(run, "weights", at), extents(run, at)];
  const [weight, d_weight, d_score, score] =
    ["weights", "d_weights", "d_scores", "scores"].map((part) => run[part][at][n]);
  const row = Math.floor(n / keys);
  return {
    where: `query ${L[0] + row} on key ${S[0] + n % keys}`,
    weight: decimal(weight), dP: decimal(d_weight), dS: decimal(d_score),
    score: decimal(score), d_score,
    lse: decimal(run.lse[at][row]), D: decimal(run.row_dot[at][row]),
  };
}

/** The question about a tile, with its recorded answer. */
export function question(run, at) {
  const text = `Next, ${meeting(run, at)}`;
  const { L, S } = extents(run, at);
  if (isLast(run, at, 1)) {
    return {
      text: `${text}, the last tile of this column. Which sums are complete then?`,
      options: [`dK and dV of ${span("key", S)}`, `these and dQ of ${span("query", L)}`],
      answer: Number(isLast(run, at)),
    };
  }
  const { where, weight, dP, D, d_score } = heaviest(run, at);
  return {
    text: `${text}. The largest weight will be ${weight}, of ${where}; there dP is ${dP}, ` +
      `and D of this query ${D}. What is dS there?`,
    options: ["below 0", "0", "above 0"],
    answer: 1 + Math.sign(d_score),
  };
}

/** What happened in the tile at a step. */
export function story(run, at) {
  const { L, S } = extents(run, at);
  const { where, score, lse, weight, dP, D, dS } = heaviest(run, at);
  const done = [isLast(run, at, 1) && `dK and dV of ${span("key", S)}`,
    isLast(run, at) && `dQ of ${span("query", L)}`].filter(Boolean);
  return `${meeting(run, at)}. Largest weight: ${where}, score ${score}, log-sum-exp ${lse}, ` +
    `so P ${weight}; dP ${dP}, D ${D}, so dS ${dS}.` +
    (done.length ? ` Complete: ${done.join("; ")}.` : "");
}

/** The tables of one step: from the scores to what the gradients collected. */
export function tables(run, at) {
  const number = (part) => (row) => kept(run, part, at, row);
  return [
    shade(run, "scores", at, "scores"),
    perQuery(run, at, "kept", [["lse", 46, number("lse")], ["D", 46, number("row_dot")]]),
    shade(run, "weights", at, "P", true, WEIGHTS),
    shade(run, "d_weights", at, "dP"),
    shade(run, "d_scores", at, "dS"),
    shade(run, "dv", at, "dV"),
    shade(run, "dk", at, "dK"),
    shade(run, "dq_sum", at, "dQ ÷ scale"),
    shade(run, "dq", at, "dQ", isLast(run, at)),
  ];
}

export const PLAY = {
  name: "flash_theatre_backward",
  schema: "flash_theatre_backward.v1",
  parts: {
    scores: "LS", weights: "LS", d_weights: "LS", d_scores: "LS",
    dq_sum: "LD", dk: "SD", dv: "SD",
  },
  results: { lse: "L", row_dot: "L", dq: "LD" },
  errors: { dq: "dQ", dk: "dK", dv: "dV" },
  rival: "five kernels that read stored weights",
  square: "P, dP and dS",
  tables, question, story,
};

export default theatre(PLAY);
