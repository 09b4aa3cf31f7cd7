/**
 * F8, the ledger: operations and traffic of every kernel, and the roofline.
 *
 * Data: `ledger.v1`, as `attention_lab.steps.ledger` writes it. Nothing is
 * computed here but sums and differences of counts.
 */
import { Refusal, decimal, h, range, short } from "./base.js";
import { PLOT_STYLE, decades, plot } from "./plot.js";
import { choice, figure, grid, scene, walk } from "./scene.js";

export default figure(stage);

/** All numbers of an entry, together. */
export function total(entry) {
  return entry.moved.reduce((sum, n) => sum + n);
}

/** A whole number in groups of three digits. */
export function count(n) {
  return n.toLocaleString("en");
}

/**
 * Check the state; its settings come back.
 * @throws {Refusal} with a sentence
 */
export function readLedger({ schema, settings, devices, dtypes }) {
  if (schema !== "ledger.v1") {
    throw new Refusal(`it needs data of schema ledger.v1, not ${schema}.`);
  }
  if (!settings?.length) throw new Refusal("the ledger is empty.");
  for (const { name, S, kernels, entries } of settings) {
    if (S.length > 4) throw new Refusal(`axis S has ${S.length} sizes in ${name}; at most 4 can be drawn.`);
    kernels.forEach((kernel, i) => S.forEach((keys, j) => {
      const { flops, moved, intensity, attainable } = entries[i]?.[j] ?? {};
      const numbers = [flops, moved, intensity, attainable].flat(2);
      if (numbers.length !== 4 + dtypes.length * (1 + devices.length) ||
          !numbers.every(Number.isFinite)) {
        throw new Refusal(`the entry “${kernel}” with ${keys} keys in ${name} is not complete.`);
      }
    }));
  }
  return settings;
}

/** Whether the next kernel moves fewer numbers, as many, or more. */
export function questionAt({ name, S, kernels, says, entries }, i, j) {
  if (i + 1 >= kernels.length) return null;
  const [here, next] = [i, i + 1].map((row) => total(entries[row][j]));
  return {
    id: `${name}/${i}/${j}`,
    text: `${S[j]} keys. “${kernels[i]}” moves ${count(here)} numbers. And ` +
      `“${kernels[i + 1]}” (${says[i + 1]})?`,
    options: ["fewer", "as many", "more"],
    answer: 1 + Math.sign(next - here),
  };
}

/** What was checked on an entry, and on the paper's table. */
export function verdictsOf({ paper, dtypes }, entry, dtype) {
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
  })).concat(paper.rows.map((row) => ({
    label: `the printed ${row.printed} GFLOP (${row.name}) does not reproduce`,
    passed: Math.abs(row.counted - row.printed) > paper.last_digit / 2,
    value: `counted ${row.counted.toFixed(1)}`, held: paper.source,
  })));
}

/** Build the stage in `el`. */
export function stage(state, el) {
  const settings = readLedger(state);
  const { devices, dtypes } = state;
  const now = { sizes: 0, device: 0, dtype: 0 };
  const board = grid("FLOP per byte", ([i, j], isFocused) => go(i, j, isFocused));
  const rows = Math.max(...settings.map((s) => s.kernels.length));
  const roof = plot(decades("FLOP per byte", -1, 3), decades("TFLOP per second, at most", -2, 2),
    { below: 16 * rows + 8 });
  const step = (by) => go(board.cursor[0] + by, board.cursor[1]);
  const steps = walk(step, "kernel");
  const frame = scene(el, {
    name: "ledger",
    style: PLOT_STYLE,
    controls: [["sizes", settings], ["device", devices], ["dtype", dtypes]].map(([what, list]) =>
      choice(what, list.map((x) => x.name), (n) => { now[what] = n; show(); }).el),
    body: [h("div", { class: "attn-parts" },
      h("div", {}, h("p", { class: "attn-title4" }, "FLOP per byte, for S keys"), board.el,
        h("p", {}, "Filled: recorded. Dashed: by formula.")),
      h("div", {}, h("p", { class: "attn-title4" }, "Numbers moved, and the speed they allow"), roof.el))],
    tools: steps.tools,
    keys: { ...board.keys, ...steps.keys },
    help: [["← →", "fewer keys, more keys"], ["↑ ↓", "another kernel"], ...steps.help],
    home: board.focus,
    question: () => questionAt(settings[now.sizes], ...board.cursor),
    next: () => step(1),
  });

  function show() {
    const { name, kernels, S } = settings[now.sizes];
    board.build(kernels, S.map(String), `FLOP per byte, ${name}`);
    go(...board.cursor);
  }

  /** Go to an entry and bring everything up to date. */
  function go(row, column, isFocused = board.hasFocus) {
    const { dtype } = now;
    const { kernels, says, S, entries } = settings[now.sizes];
    const i = Math.min(Math.max(row, 0), kernels.length - 1);
    const j = Math.min(column, S.length - 1);
    const entry = entries[i][j];
    const how = ({ counted }) => (counted[dtype] ? "recorded" : "by formula");
    board.place(i, j);
    board.update((r, c) => {
      const here = entries[r][c];
      const x = here.intensity[dtype];
      return {
        text: short(x), kind: here.counted[dtype] ? "attn-seen" : "",
        label: `${kernels[r]}, ${S[c]} keys: ${decimal(x)} FLOP per byte, ${how(here)}`,
      };
    }, isFocused);
    const all = entries.map((line) => total(line[j]));
    const { name, peak, source } = devices[now.device];
    const reached = entry.attainable[now.device][dtype];
    const apart = all[i] - all.at(-1);
    frame.say(`${S[j]} keys, ${kernels[i]} (${says[i]}), ${how(entry)}: ${count(all[i])} numbers ` +
      `for ${count(entry.flops)} FLOP, ${decimal(entry.intensity[dtype])} FLOP per byte. On a ${name} ` +
      `${reached < peak[dtype] ? "memory" : "arithmetic"} is the limit: at most ${decimal(reached)} of ` +
      `${decimal(peak[dtype])} TFLOP per second.` + (apart ? ` ${count(Math.abs(apart))} numbers ` +
      `${apart < 0 ? "fewer" : "more"} than stored scores need.` : ""));
    const points = state.points.filter((p) => p.device === name && p.dtype === dtypes[dtype].name);
    const line = ({ bandwidth, peak: { [dtype]: top } }, kind) =>
      ({ line: [[0.1, 0.1 * bandwidth], [top / bandwidth, top], [1000, top]], kind });
    const x = (r) => entries[r][j].intensity[dtype];
    roof.draw(`Roofline of ${name} by datasheet`, [
      ...devices.map((d) => line(d, "attn-thin")), line(devices[now.device], "attn-thick"),
      { text: `${name} ${decimal(peak[dtype])}`, at: [1000, peak[dtype] * 1.6], anchor: "end", kind: "attn-here" },
      ...range(kernels.length).sort((a, b) => x(b) - x(a)).map((r, place) => ({
        row: place, text: `${kernels[r]}: ${count(all[r])}`, kind: r === i ? "attn-here" : "",
        from: [x(r), entries[r][j].attainable[now.device][dtype]],
      })),
      ...points.flatMap((p) => [{ line: [[p.intensity, p.low], [p.intensity, p.high]] },
        { dot: [p.intensity, p.tflops], kind: "attn-odd" }]),
    ]);
    frame.note(`${source}. ${points.map((p) => `${p.name}: ${decimal(p.tflops)} TFLOP per second.`)
      .join(" ") || "No speed was measured: every speed here is a bound."}`);
    frame.verdicts(verdictsOf(state, entry, dtype));
    frame.compare(i ? questionAt(settings[now.sizes], i - 1, j) : null);
  }

  show();
  frame.open();
  return () => el.replaceChildren();
}
