/**
 * A plot with two axes. `attention_lab.figures.axis_plot` draws the same still.
 */
import { set } from "./base.js";

export const PLOT_STYLE = `
.attn-plot{max-width:100%;height:auto;font-size:11px;overflow:visible}
.attn-plot text{fill:currentColor}
.attn-plot path{fill:none;stroke:currentColor}
.attn-plot .attn-thin{stroke-opacity:.45}
.attn-plot .attn-thick{stroke-width:2.5}
.attn-plot .attn-dash{stroke-dasharray:5 3}
.attn-plot rect{fill:var(--d);stroke:#6b7280}
.attn-plot rect.attn-plain{fill:var(--kept)}
.attn-plot rect.attn-odd{fill:#b83280}
.attn-plot .attn-here{font-weight:700}
`;

/** An axis: its ends, its name, [value, text] of each tick. */
export function axis(low, high, name, ticks, isLog = false) {
  const f = isLog ? Math.log : Number;
  return {
    low, high, name, ticks,
    /** 0 at the low end, 1 at the high end; values beyond lie on the end. */
    place: (x) => (f(Math.min(Math.max(x, low), high)) - f(low)) / (f(high) - f(low)),
  };
}

/** A logarithmic axis with a tick at every power of ten. */
export function decades(name, first, last) {
  const ticks = [];
  for (let n = first; n <= last; n += 1) {
    const far = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹";
    const small = [...String(n)].map((c) => far["-0123456789".indexOf(c)]).join("");
    ticks.push([10 ** n, Math.abs(n) <= 3 ? String(Number((10 ** n).toFixed(3))) : `10${small}`]);
  }
  return axis(10 ** first, 10 ** last, name, ticks, true);
}

/** An element of a drawing. */
function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text != null) element.textContent = text;
  return element;
}

/**
 * Make a plot; `below` is room for rows between the area and the lower axis.
 * @returns {{el: SVGElement, draw: (label: string, layers: object[]) => void}}
 *   layers, each with an optional `kind`: {line: pairs}, {dot: pair},
 *   {bar: [left, right, height]}, {text, at: pair, anchor}, and
 *   {row, text, from: pair}: a mark below the area with a line up to the pair
 */
export function plot(across, up, { width = 250, height = 140, below = 0 } = {}) {
  const [x0, y0] = [38, 24];
  const at = ([x, y]) => [x0 + width * across.place(x), y0 + height * (1 - up.place(y))]
    .map((n) => Number(n.toFixed(1)));
  const [bottom, foot] = [y0 + height, y0 + height + below];
  const area = svg("g", {});
  const text = (x, y, words, anchor = "middle", kind = "") =>
    svg("text", { x, y: y + 4, "text-anchor": anchor, class: kind }, words);
  const path = (points, kind = "") => svg("path", { d: `M${points.join("L")}`, class: kind });
  const box = (x, y, w, tall, kind) => svg("rect", { x, y, width: w, height: tall, class: kind });
  const el = svg("svg", {
    class: "attn-plot", role: "img", width: x0 + width + 12, height: foot + 36,
    viewBox: `0 0 ${x0 + width + 12} ${foot + 36}`,
  });
  el.append(
    path([[x0, y0], [x0, bottom]], "attn-thin"),
    path([[x0, foot], [x0 + width, foot]], "attn-thin"),
    text(0, 6, up.name, "start"), text(x0 + width, foot + 28, across.name, "end"),
    ...across.ticks.map(([x, words]) => text(at([x, up.low])[0], foot + 12, words)),
    ...up.ticks.map(([y, words]) => text(x0 - 5, at([across.low, y])[1], words, "end")),
    area);
  const drawn = {
    line: ({ line, kind }) => [path(line.map(at), kind)],
    dot({ dot, kind = "" }) {
      const [x, y] = at(dot);
      return [box(x - 3.5, y - 3.5, 7, 7, kind)];
    },
    bar({ bar: [left, right, tall], kind = "attn-plain" }) {
      const [x, y] = at([left, tall]);
      return [box(x, y, at([right, tall])[0] - x, bottom - y, kind)];
    },
    row({ row, text: words, from, kind = "" }) {
      const [x, y] = at(from);
      const middle = bottom + 14 + 16 * row;
      return [path([[x, y], [x, middle]], "attn-thin"),
        ...[y, middle].map((tall) => box(x - 3.5, tall - 3.5, 7, 7, "")),
        text(x + 9, middle, words, "start", kind)];
    },
    text: ({ text: words, at: pair, anchor, kind }) => [text(...at(pair), words, anchor, kind)],
  };
  return {
    el,
    draw(label, layers) {
      set(el, "aria-label", label);
      area.replaceChildren(...layers.flatMap((layer) =>
        drawn[["line", "dot", "bar", "row", "text"].find((name) => name in layer)](layer)));
    },
  };
}
