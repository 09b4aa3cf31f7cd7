/** The tables of a flash theatre: one row per query, the same in each. */
import { chip, decimal, h, range, short, valueStyle } from "./base.js";
import {
  before, differ, grown, isLast, keysOf, rightValue, rowsOf,
} from "./theatre_data.js";

/** Widths of columns: the query's number, a cell, one with two decimals. */
export const QUERY = 20, CELL = 30, WIDE = 42;

/**
 * A table of fixed widths, so that a step need not measure it again.
 * @param {(Node|string)[]} caption what it shows
 * @param {[string, number][]} columns head and width of each
 * @param {any[][]} rows the query's number, then cells
 * @param {string} [kind] class of the heads
 */
export function table(caption, columns, rows, kind) {
  const width = columns.reduce((sum, [, w]) => sum + w, QUERY);
  return h("table", { style: `width:${width}px` }, h("caption", {}, ...caption),
    h("thead", {}, h("tr", {}, h("td", { style: `width:${QUERY}px` }),
      ...columns.map(([text, w]) =>
        h("th", { scope: "col", class: kind, style: `width:${w}px` }, text)))),
    h("tbody", {}, ...rows.map(([query, ...cells]) =>
      h("tr", {}, h("th", { scope: "row" }, String(query)), ...cells))));
}

/** A coloured cell, framed where it differs from the right loop. */
export function colored(x, scale, right) {
  const off = right === undefined || differ(x, right) ? " attn-off" : "";
  if (x === null) return h("td", { class: `attn-cell attn-none${off}` }, "−∞");
  const text = short(x);
  const long = text.length > 3 && !text.includes(".") ? " attn-long" : "";
  return h("td", { class: `attn-cell${off}${long}`, style: valueStyle(x / scale) }, text);
}

/** A plain number of a state. */
export function plain(x, right = x, isNew = false) {
  const kind = (isNew ? " attn-new" : "") + (differ(x, right) ? " attn-off" : "");
  return h("td", { class: `attn-num${kind}` }, decimal(x, Math.abs(x ?? 0) < 100 ? 2 : 1));
}

/** The largest size among some numbers; 1 where all are 0. */
export function largest(lists) {
  return Math.max(...lists.flat().map((x) => Math.abs(x ?? 0))) || 1;
}

/** The tables of one step: scores, what is kept, acc; at last the result. */
export function tablesOf(run, at) {
  const { D } = run;
  const [i, j] = run.tiles[at];
  const first = i * run.TILE_L;
  const rows = range(rowsOf(run, i));
  const keys = keysOf(run, at);
  const wide = largest(run.scores);
  const mix = largest([run.acc[at]]);
  const right = (part, row, column, width) =>
    run.slip ? rightValue(run, part, at, row, column, width)
      : run[part][at][row * width + column];
  const key = (s) => (s < run.S ? String(s) : "–");
  const parts = [
    table(["scores ", chip("L"), " × ", chip("S")],
      range(keys).map((n) => [key(j * run.TILE_S + n), CELL]),
      rows.map((row) => [first + row, ...range(keys).map((n) =>
        colored(run.scores[at][row * keys + n], wide, right("scores", row, n, keys)))])),
    table(["kept per query"], [["max", 48], ["→ max", 48], ["α", 34], ["sum", 42], ["→ sum", 46]],
      rows.map((row) => {
        const old = before(run, at, row) ?? [run.slip === "max_starts_at_zero" ? 0 : null, 0];
        const isNew = grown(run, at)[row];
        return [first + row, plain(old[0]),
          plain(run.row_max[at][row], right("row_max", row, 0, 1), isNew),
          plain(run.rescale[at][row], right("rescale", row, 0, 1), isNew),
          plain(old[1]), plain(run.row_sum[at][row], right("row_sum", row, 0, 1))];
      }), "attn-num"),
    table(["acc: the mix of values so far ", chip("D")], range(D).map((d) => [String(d), CELL]),
      rows.map((row) => [first + row, ...range(D).map((d) =>
        colored(run.acc[at][row * D + d], mix, right("acc", row, d, D)))])),
  ];
  return [...parts, ...resultOf(run, first, rows, isLast(run, at))];
}

/** The output and the log-sum-exp: empty until the last tile is done. */
export function resultOf(run, first, rows, isStored) {
  const { D, out, lse, right } = run;
  const scale = largest([out]);
  return [
    table(["max + ln sum"], [["log-sum-exp", 88]],
      rows.map((row) => [first + row, isStored
        ? plain(lse[first + row], right.lse[first + row])
        : h("td", { class: "attn-num" })]),
      "attn-num"),
    table(["output = acc ÷ sum ", chip("D")], range(D).map((d) => [String(d), CELL]),
      rows.map((row) => [first + row, ...range(D)
        .map((d) => (first + row) * D + d)
        .map((n) => (isStored ? colored(out[n], scale, right.out[n])
          : h("td", { class: "attn-cell" })))])),
  ];
}

/** What is known before a prediction: the maxima so far, the new scores. */
export function arriving(run, at) {
  const [i, j] = run.tiles[at];
  const keys = keysOf(run, at);
  const wide = largest(run.scores);
  const key = (s) => (s < run.S ? String(s) : "–");
  return h("div", { class: "attn-scroll", ...(keys > 4 && {
    tabindex: "0", role: "group", "aria-label": "what arrives",
  }) }, table(["what arrives ", chip("S")],
    [["max", 50], ...range(keys).map((n) => [key(j * run.TILE_S + n), WIDE])],
    range(rowsOf(run, i)).map((row) => [i * run.TILE_L + row,
      plain(before(run, at, row)?.[0] ?? null),
      ...range(keys).map((n) => {
        const x = run.scores[at][row * keys + n];
        return h("td", {
          class: `attn-cell attn-wide${x === null ? " attn-none" : ""}`,
          style: x === null ? null : valueStyle(x / wide),
        }, decimal(x, Math.abs(x ?? 0) < 100 ? 2 : 1));
      })])));
}
