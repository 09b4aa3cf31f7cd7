/**
 * F8, the ledger: operations and traffic of every kernel, and the roofline.
 *
 * Data: `ledger.v1`, as `attention_lab.steps.ledger` writes it. Nothing is
 * computed here but sums and differences of counts.
 */
import { Refusal, checkSchema, count, decimal, h, needs, range, short } from "./base.js";
import { PLOT_STYLE, decades, plot } from "./plot.js";
import { choice, figure, grid, scene, walk } from "./scene.js";

export default figure(stage);

/** All numbers of an entry, together. */
export function total(entry) {
  return entry.moved.reduce((sum, n) => sum + n);
}

/**
 * Check the state; its settings come back.
 * @throws {Refusal} with a sentence
 */
export function readLedger({ schema, settings, devices, dtypes }) {
  checkSchema({ schema }, "ledger.v1");
  if (!settings?.length) throw new Refusal("the ledger is empty.");
  for (const { name, S, kernels, entries } of settings) {
    if (S.length > 4) throw new Refusal(`axis S of ${name} has size ${S.length}; at most 4 can be drawn.`);
    needs(name, entries.flat().flatMap((e) => [e.flops, e.moved, e.intensity, e.attainable].flat(2)),
      kernels.length * S.length * (4 + dtypes.length * (1 + devices.length)));
  }
  return settings;
}

/** Whether the next kernel moves fewer numbers, as many, or more. */
export function questionAt({ name, S, kernels, entries }, i, j) {
  if (i + 1 >= kernels.length) return null;
  const [here, next] = [i, i + 1].map((row) => total(entries[row][j]));
  return {
    id: `${name}/${i}/${j}`,
    text: `${S[j]} keys. “${kernels[i]}” moves ${count(here)} numbers. And ` +
      `“${kernels[i + 1]}”?`,
    options: ["fewer", "as many", "more"],
    answer: 1 + Math.sign(next - here),
  };
}

/** What was checked on an entry, and what on the ledger as a whole. */
export function verdictsOf({ checked = [], dtypes }, entry, dtype) {
  const found = entry.counted[dtype];
  const { name, bytes } = dtypes[dtype];
  const strip = found ? [
    ["traffic", total(found), total(entry),
      `${found.moved}` === `${entry.moved}` && found.bytes === bytes * total(entry)],
    ["products", found.flops, entry.flops, found.flops === entry.flops],
  ] : [];
  return strip.map(([label, got, formula, passed]) => ({
    label: `${label}, measured ÷ formula`, passed, value: (got / formula).toFixed(4),
    held: `${count(got)} of ${count(formula)}; recorded in ${name}`,
  })).concat(checked);
}

/** Build the stage in `el`. */
export function stage(state, el) {
  const settings = readLedger(state);
  const { devices, dtypes } = state;
  const now = { sizes: 0, device: 0, dtype: 0 };
  const board = grid("FLOP per byte", ([i, j], isFocused) => go(i, j, isFocused));
  const roof = plot(decades("FLOP per byte", -1, 3), decades("TFLOP per second, at most", -2, 2),
    { below: 16 * Math.max(...settings.map((s) => s.kernels.length)) + 8 });
  const steps = walk((by) => go(board.cursor[0] + by, board.cursor[1]), "kernel");
  const headed = (words, part) => h("div", {}, h("p", { class: "attn-title4" }, words), part);
  const frame = scene(el, {
    ...steps,
    name: "ledger",
    style: PLOT_STYLE,
    controls: [["sizes", settings], ["device", devices], ["dtype", dtypes]].map(([what, list]) =>
      choice(what, list.map((x) => x.name), (n) => { now[what] = n; show(); }).el),
    body: [h("div", { class: "attn-parts" },
      headed("FLOP per byte; filled: recorded", board.el),
      headed("Numbers moved, and the roof", roof.el))],
    keys: { ...board.keys, ...steps.keys },
    help: [["← → ↑ ↓", "more keys, another kernel"], ...steps.help],
    home: board.focus,
    question: () => questionAt(settings[now.sizes], ...board.cursor),
    next: steps.keys.PageDown,
  });

  function show() {
    const { kernels, S } = settings[now.sizes];
    board.build(kernels, S.map(String));
    go(...board.cursor);
  }

  /** Go to an entry and bring everything up to date. */
  function go(row, column, isFocused = board.hasFocus) {
    frame.closeCard();
    const { dtype } = now;
    const { kernels, says, S, entries } = settings[now.sizes];
    board.place(Math.min(Math.max(row, 0), kernels.length - 1), Math.min(column, S.length - 1));
    const [i, j] = board.cursor;
    const { name, peak: { [dtype]: peak }, source } = devices[now.device];
    const all = entries.map((line) => ({
      moves: total(line[j]), x: line[j].intensity[dtype], y: line[j].attainable[now.device][dtype],
    }));
    const look = (r, c) => {
      const { intensity, counted: { [dtype]: found } } = entries[r][c];
      return {
        text: short(intensity[dtype]), kind: found ? "attn-seen" : "",
        label: `${S[c]} keys, ${kernels[r]}, ${found ? "recorded" : "by formula"}: ` +
          `${short(intensity[dtype])} FLOP per byte`,
      };
    };
    board.update(look, isFocused);
    const { moves, y } = all[i];
    const apart = moves - all.at(-1).moves;
    frame.say(`${look(i, j).label}. That is ${count(entries[i][j].flops)} FLOP for ${count(moves)} numbers` +
      `, ${count(Math.abs(apart))} ${apart < 0 ? "fewer" : "more"} than “stored once”` +
      `. On ${name} ${y < peak ? "memory" : "arithmetic"} is the limit: at most ` +
      `${decimal(y)} of ${decimal(peak)} TFLOP per second.`);
    const points = state.points.filter((p) => p.device === name && p.dtype === dtypes[dtype].name);
    roof.draw(`Roofline of ${name} by datasheet`, [
      ...devices.map((d) => ({ line: d.roof[dtype], kind: d.name === name ? "attn-thick" : "attn-thin" })),
      { text: decimal(peak), at: [1000, peak * 1.6], anchor: "end", kind: "attn-here" },
      ...range(kernels.length).sort((a, b) => all[b].x - all[a].x).map((r, place) => ({
        row: place, text: `${kernels[r]}: ${count(all[r].moves)}`,
        kind: r === i ? "attn-here" : "", from: [all[r].x, all[r].y],
      })),
      ...points.flatMap((p) => [{ line: [[p.intensity, p.low], [p.intensity, p.high]] },
        { dot: [p.intensity, p.tflops], kind: "attn-odd" }]),
    ]);
    frame.note(`${says[i]}. ${source}. Measured: `, points.map((p) =>
      `${p.name} ${decimal(p.tflops)}`).join(", ") || "none; every speed is an estimate", ".");
    frame.verdicts(verdictsOf(state, entries[i][j], dtype));
    frame.compare(i ? questionAt(settings[now.sizes], i - 1, j) : null);
  }

  show();
  frame.open();
}
