/**
 * F8, the ledger: operations and traffic of every kernel, and the roofline.
 *
 * Data: `ledger.v1`, as `attention_lab.steps.ledger` writes it. Nothing is
 * computed here but sums and differences of counts.
 */
import { Refusal, decimal, h, short } from "./base.js";
import { PLOT_STYLE, decades, plot } from "./plot.js";
import { choice, figure, grid, scene } from "./scene.js";

export default figure(stage);

/** All numbers of an entry, together. */
export function total(entry) {
  return entry.moved.reduce((sum, n) => sum + n, 0);
}

/** A whole number in groups of three digits. */
export function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/**
 * Check the state; its settings come back.
 * @throws {Refusal} with a sentence
 */
export function readLedger(state) {
  if (state?.schema !== "ledger.v1") {
    throw new Refusal(`it needs data of schema ledger.v1, not ${state?.schema}.`);
  }
  const { settings, devices, dtypes } = state;
  if (!settings?.length || !devices?.length) throw new Refusal("the ledger is empty.");
  for (const { name, S, kernels, entries } of settings) {
    if (S?.length > 4) throw new Refusal(`axis S has ${S.length} sizes in ${name}; at most 4 can be drawn.`);
    kernels.forEach((kernel, i) => S.forEach((keys, j) => {
      const entry = entries[i]?.[j];
      const numbers = entry && [entry.flops, ...entry.moved, ...entry.intensity, ...entry.attainable.flat()];
      if (numbers?.length !== 4 + dtypes.length * (1 + devices.length) ||
          !numbers.every((x) => Number.isFinite(x) && x >= 0)) {
        throw new Refusal(`the entry “${kernel}” with ${keys} keys in ${name} is not complete.`);
      }
    }));
  }
  return settings;
}

/** Whether the next kernel moves fewer numbers, as many, or more. */
export function questionAt(setting, i, j) {
  if (i + 1 >= setting.kernels.length) return null;
  const [here, next] = [i, i + 1].map((row) => total(setting.entries[row][j]));
  return {
    id: `${setting.name}/${i}/${j}`,
    text: `${setting.S[j]} keys. “${setting.kernels[i]}” moves ${count(here)} numbers. And ` +
      `“${setting.kernels[i + 1]}” (${setting.says[i + 1]})?`,
    options: ["fewer", "as many", "more"],
    answer: 1 + Math.sign(next - here),
  };
}

/** What was checked on an entry, and on the paper's table. */
export function verdictsOf(state, entry, dtype) {
  const counted = entry.counted[dtype];
  const strip = state.paper.rows.map(({ name, printed, counted: n }) => ({
    label: `the printed ${printed} GFLOP (${name}) does not reproduce`,
    passed: Math.abs(n - printed) > state.paper.last_digit / 2,
    value: `counted ${n.toFixed(1)}`, held: state.paper.source,
  }));
  if (!counted) return strip;
  const { name, bytes } = state.dtypes[dtype];
  return [["traffic", total(counted), total(entry),
    String(counted.moved) === String(entry.moved) && counted.bytes === bytes * total(entry)],
  ["products", counted.flops, entry.flops, counted.flops === entry.flops],
  ].map(([label, found, formula, passed]) => ({
    label: `${label}, measured ÷ formula`, passed,
    value: (found / formula).toFixed(4),
    held: `${count(found)} of ${count(formula)}; recorded in ${name}`,
  })).concat(strip);
}

/** Build the stage in `el`. */
export function stage(state, el) {
  const settings = readLedger(state);
  const { devices, dtypes } = state;
  const now = { setting: settings[0], device: 0, dtype: 0 };
  const board = grid("FLOP per byte", ([i, j], isFocused) => go(i, j, isFocused));
  const rows = Math.max(...settings.map((s) => s.kernels.length));
  const roof = plot(decades("FLOP per byte", -1, 3), decades("TFLOP per second, at most", -2, 2),
    { below: 16 * rows + 8 });
  const table = h("table", { style: "width:284px" });
  const pick = (label, list, put) => choice(label, list.map((x) => x.name),
    (n) => { put(n); show(); });
  const frame = scene(el, {
    name: "ledger",
    style: `${PLOT_STYLE}.attn-amount{display:block;height:12px;background:var(--kept);
border:1px solid #6b7280}.attn-stage tr.attn-here{font-weight:700}`,
    controls: [
      pick("sizes", settings, (n) => { now.setting = settings[n]; }).el,
      pick("device", devices, (n) => { now.device = n; }).el,
      pick("dtype", dtypes, (n) => { now.dtype = n; }).el,
    ],
    body: [h("div", { class: "attn-parts" },
      h("div", {}, h("p", { class: "attn-title4" }, "FLOP per byte, for S keys"), board.el,
        h("p", {}, "Filled: recorded. Dashed: by formula.")), roof.el)],
    results: [table],
    tools: [["Step", () => step(1), "Space"], ["Back", () => step(-1), "PgUp"]],
    keys: {
      ...board.keys, " ": () => step(1), PageDown: () => step(1), PageUp: () => step(-1),
      Home: () => go(0, board.cursor[1]), End: () => go(rows, board.cursor[1]),
    },
    help: [
      ["← →", "fewer keys, more keys"], ["↑ ↓", "another kernel"],
      ["Space", "the next kernel (also PgDn)"], ["PgUp", "the kernel before"],
      ["Home, End", "first kernel, last kernel"],
    ],
    home: board.focus,
    question: () => questionAt(now.setting, ...board.cursor),
    next: () => step(1),
  });

  function show() {
    const { setting } = now;
    board.build(setting.kernels, setting.S.map(String), `FLOP per byte, ${setting.name}`);
    frame.closeCard();
    go(...board.cursor);
  }

  function step(by) { go(board.cursor[0] + by, board.cursor[1]); }

  /** Go to an entry and bring everything up to date. */
  function go(row, column, isFocused = board.hasFocus) {
    const { setting, device, dtype } = now;
    const i = Math.min(Math.max(row, 0), setting.kernels.length - 1);
    const j = Math.min(Math.max(column, 0), setting.S.length - 1);
    board.place(i, j);
    const entry = setting.entries[i][j];
    board.update((r, c) => {
      const { intensity, counted } = setting.entries[r][c];
      return {
        text: short(intensity[dtype]), kind: counted[dtype] ? "attn-seen" : "",
        label: `${setting.kernels[r]}, ${setting.S[c]} keys: ${decimal(intensity[dtype])} ` +
          `FLOP per byte, ${counted[dtype] ? "recorded" : "by formula"}`,
      };
    }, isFocused);
    drawRoof(i, j);
    const most = Math.max(...setting.entries.map((line) => total(line[j])));
    table.replaceChildren(h("caption", {}, `numbers moved, ${setting.S[j]} keys`),
      h("tbody", {}, ...setting.kernels.map((kernel, r) => {
        const n = total(setting.entries[r][j]);
        return h("tr", { class: r === i && "attn-here" },
          h("th", { scope: "row", style: "width:78px" }, kernel),
          h("td", {}, h("i", { class: "attn-amount", style: `width:${100 * n / most}%` })),
          h("td", { class: "attn-num", style: "width:106px" }, count(n)));
      })));
    const { name, peak } = devices[device];
    const reached = entry.attainable[device][dtype];
    const bound = setting.entries.at(-1)[j];
    const apart = total(entry) - total(bound);
    const counted = entry.counted[dtype];
    frame.say(`${setting.says[i]}, ${setting.S[j]} keys, ${counted ? "recorded" : "by formula"}: ` +
      `${count(counted ? total(counted) : total(entry))} numbers moved for ${count(entry.flops)} FLOP, ` +
      `${decimal(entry.intensity[dtype])} FLOP per byte. On a ${name} the ` +
      `${reached < peak[dtype] ? "memory" : "arithmetic"} is the limit: at most ${decimal(reached)} of ` +
      `${decimal(peak[dtype])} TFLOP per second, by datasheet.` + (entry === bound ? ""
      : ` ${count(Math.abs(apart))} numbers ${apart < 0 ? "fewer" : "more"} than stored scores need at least.`));
    frame.verdicts(verdictsOf(state, entry, dtype));
    frame.compare(i > 0 ? questionAt(setting, i - 1, j) : null);
  }

  function drawRoof(i, j) {
    const { setting, device, dtype } = now;
    const line = ({ bandwidth, peak }, kind) => ({
      line: [[0.1, 0.1 * bandwidth], [peak[dtype] / bandwidth, peak[dtype]], [1000, peak[dtype]]], kind,
    });
    const { name, peak, source } = devices[device];
    const order = setting.kernels.map((_, r) => r).sort((a, b) =>
      setting.entries[b][j].intensity[dtype] - setting.entries[a][j].intensity[dtype]);
    const points = state.points.filter((p) => p.device === name && p.dtype === dtypes[dtype].name);
    roof.draw(`Roofline of a ${name} by datasheet, ${setting.kernels[i]} on it`, [
      ...devices.map((d) => line(d, "attn-thin")), line(devices[device], "attn-thick"),
      { text: `${name} ${peak[dtype]}`, at: [1000, peak[dtype] * 1.6], anchor: "end", kind: "attn-here" },
      ...order.map((r, row) => {
        const entry = setting.entries[r][j];
        return {
          row, text: setting.kernels[r], kind: r === i ? "attn-here" : "",
          from: [entry.intensity[dtype], entry.attainable[device][dtype]],
        };
      }),
      ...points.flatMap((p) => [
        { line: [[p.intensity, p.low], [p.intensity, p.high]] },
        { dot: [p.intensity, p.tflops], kind: "attn-odd" }]),
    ]);
    frame.note(`${source}. ` + (points.length
      ? `Measured: ${points.map((p) => `${p.name} ${decimal(p.tflops)} TFLOP per second`).join(", ")}.`
      : "No speed was measured: every speed here is a bound."));
  }

  show();
  frame.open();
  return () => el.replaceChildren();
}
