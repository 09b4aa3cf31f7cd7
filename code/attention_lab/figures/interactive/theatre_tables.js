/** The tables of a theatre: one row per query or key, coloured numbers. */
import { chip, decimal, h, range, short, valueStyle } from "./base.js";
import { differ, extents, rightValue, widthOf } from "./theatre_data.js";

/** Widths of columns: the row's number, a cell at least, one with two decimals. */
export const QUERY = 20, CELL = 30, WIDE = 42;

/**
 * A table of fixed widths, so that a step need not measure it again.
 * @param {(Node|string)[]} caption what it shows
 * @param {[string, number][]} columns head and width of each
 * @param {any[][]} rows the row's number, then cells
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

/** A number in at most four characters, with two decimals where it is small. */
export function fine(x) {
  return x && Math.abs(x) < 0.995 ? decimal(x).replace("0.", ".") : short(x);
}

/** A coloured cell, framed where it differs from the right loop. */
export function colored(x, scale, right, ramp, text = fine(x)) {
  const off = differ(x, right) ? " attn-off" : "";
  if (x === null) return h("td", { class: `attn-cell attn-none${off}` }, text);
  const long = text.length > 3 && !text.includes(".") ? " attn-long" : "";
  return h("td", { class: `attn-cell${off}${long}`, style: valueStyle(x / scale, ramp) }, text);
}

/** A number with two decimals, or one where it is large. */
export function exact(x) {
  return decimal(x, Math.abs(x) < 100 ? 2 : 1);
}

/** A plain number of a state. */
export function plain(x, right = x, isNew = false) {
  const kind = (isNew ? " attn-new" : "") + (differ(x, right) ? " attn-off" : "");
  return h("td", { class: `attn-num${kind}` }, exact(x));
}

/** The largest size among some numbers; 1 where all are 0. */
export function largest(lists) {
  return Math.max(...lists.flat().map(Math.abs)) || 1;
}

/** The numbers along an axis of a tile; "–" past the end. */
export function names(run, at, axis) {
  const [first, many] = extents(run, at)[axis];
  return range(many).map((n) => (first + n < run[axis] ? String(first + n) : "–"));
}

/**
 * The coloured table of a part of a tile.
 * @param {string} words what it shows; the chips of its axes follow
 * @param {boolean} [isThere] whether its numbers exist yet
 * @param {number} [ramp] see `valueStyle`
 */
export function shade(run, part, at, words, isThere = true, ramp) {
  const [down, across] = run.axes[part];
  const width = widthOf(run, part, at);
  const scale = largest(run[part]);
  return table([`${words} `, chip(down), " × ", chip(across)],
    names(run, at, across).map((name) => [name, Math.max(CELL, 120 / width)]),
    names(run, at, down).map((name, row) => [name, ...range(width).map((column) => {
      const n = row * width + column;
      return isThere ? colored(run[part][at][n], scale, rightValue(run, part, at, n), ramp)
        : h("td", { class: "attn-cell" });
    })]));
}

/** A table of plain numbers per query: [head, width, cell of a row] each. */
export function perQuery(run, at, caption, columns) {
  return table([caption], columns, names(run, at, "L").map((name, row) =>
    [name, ...columns.map(([, , cell]) => cell(row))]), "attn-num");
}

/** A plain number of a part with one number per query. */
export function kept(run, part, at, row, isNew) {
  return plain(run[part][at][row], rightValue(run, part, at, row), isNew);
}
