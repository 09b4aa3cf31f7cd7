/**
 * F1, the patch ledger: whom a patch of a digit looks at, and what it gets.
 *
 * Data: `patch_ledger.v1`, as `attention_lab.steps.patch_ledger` writes it:
 * weights in thousandths, values and outputs in hundredths. Nothing is computed
 * here but differences and counts of recorded numbers.
 */
import {
  Refusal, checkList, checkSize, chip, decimal, h, rampColors, range, readRuns,
  short, showTables, valueStyle, within,
} from "./base.js";
import { choice, figure, grid, scene, walk } from "./scene.js";

export const SCHEMA = "patch_ledger.v1";
export const N = 16, SIDE = 4, MOST = 8;
/** Places in RAMPS. */
const WEIGHTS = 2, PIXELS = 3;

const CHECKS = {
  sum: "every row of weights sums to 1",
  output: "outputs against the reference",
  shuffle: "shuffled patches give shuffled outputs",
};

export const FIGURE_STYLE = `
.attn-patches{gap:0;counter-reset:p -1;font-weight:700;margin:0 4px}
.attn-patches [data-cell]{border:1px solid #6b7280;position:relative}
.attn-patches [data-cell]::before{counter-increment:p;content:counter(p);
position:absolute;top:2px;left:2px;padding:0 4px;font:10px/14px sans-serif;
background:#fff;color:#000}
.attn-patches [aria-selected=true]{border:4px solid var(--l);z-index:1;
outline-color:var(--l)}
.attn-stage .attn-sum tr>*{height:21px}
.attn-stage .attn-sum tr:last-child>*{height:30px;border-top:4px double;
font-weight:700}
`;

export default figure(stage);

/**
 * Check what a model holds.
 * @returns the runs, each with its source and the pixels of its digit
 * @throws {Refusal} with a sentence
 */
export function readLedger(state) {
  const runs = readRuns(state, SCHEMA).map((run) => {
    const source = state.sources?.[run.source];
    return { ...run, source, pixels: state.digits?.[source?.digit]?.pixels };
  });
  if (runs[0].axis !== "S") throw new Refusal("the first run is not a right one.");
  for (const { source, ...run } of runs) {
    checkSize("D", source?.D, MOST);
    checkList(`values of ${source.name}`, source.values, N * source.D);
    for (const [part, size] of [["pixels", 4 * N], ["weights", N * N], ["sums", N],
      ["out", N * source.D]]) checkList(`${part} of ${source.name}`, run[part], size);
    checkList(`errors of ${source.name}`, Object.keys(CHECKS).flatMap((key) =>
      [run[`${key}_error`], run[`${key}_bound`]]), 6);
  }
  return runs;
}

/** A weight in few characters: .41. */
export function share(thousandths) {
  return decimal(thousandths / 1000).replace(/^0/, "");
}

/** The weights of one query, and its keys from the largest to the smallest. */
export function rowOf(run, query) {
  const weights = run.weights.slice(query * N, query * N + N);
  return { weights, order: range(N).sort((a, b) => weights[b] - weights[a]) };
}

/** What may be asked about a query before it is shown. */
export function questionOf(run, query) {
  const { weights, order } = rowOf(run, query);
  const asks = `Patch ${query} asks. `;
  if (!run.source.same) {
    return {
      text: `${asks}Does it give the largest weight to itself?`,
      options: ["yes", "no"],
      answer: order[0] === query ? 0 : 1,
    };
  }
  const [a, b] = run.source.same;
  return {
    text: `${asks}Patches ${a} and ${b} have identical keys. Which one gets more weight?`,
    options: [`the first, ${a}`, "both the same", `the second, ${b}`],
    answer: 1 - Math.sign(weights[a] - weights[b]),
  };
}

/** Say what a query does; also read aloud. */
export function happened(run, query) {
  const { weights, order } = rowOf(run, query);
  const terms = order.slice(0, 3).map((p) => `${share(weights[p])}·v${p} + `);
  return `Patch ${query}: output = ${terms.join("")}${N - 3} smaller shares. ` +
    (run.axis === "S" ? "" : "Mistake: the softmax runs over the queries. ") +
    `Its weights sum to ${decimal(run.sums[query] / 1000)}.`;
}

/** What was checked on a run. */
export function verdictsOf(run, source) {
  return Object.entries(CHECKS).map(([key, label]) =>
    within(label, run[`${key}_error`], run[`${key}_bound`], source));
}

/** The sum of a query: weight times value, largest first, and the output. */
export function ledgerOf(run, query) {
  const { weights, order } = rowOf(run, query);
  const { D, values } = run.source;
  const scale = Math.max(...values.map(Math.abs)) || 1;
  const cell = (text, style) => h("td", { class: "attn-cell", style }, text);
  const line = (weight, style, name, list, patch) => h("tr", {},
    cell(share(weight), `${style};width:38px`),
    h("th", { scope: "row", style: "width:50px" }, name),
    ...range(D).map((d) => list[patch * D + d])
      .map((x) => cell(short(x / 100), valueStyle(x / scale))));
  return h("table", { class: "attn-sum", style: `width:${88 + 26 * D}px` },
    h("caption", {}, "weight · value, summed over ", chip("S"), ", per ", chip("D")),
    ...order.map((p) => line(weights[p],
      valueStyle(weights[p] / weights[order[0]], WEIGHTS), `· v${p}`, values, p)),
    line(run.sums[query], "", "output", run.out, query));
}

/** How a patch of the digit looks; `part` of the largest weight lies on it. */
export function patchStyle(pixels, patch, part) {
  const first = (patch >> 2) * 16 + (patch & 3) * 2;
  const [tl, tr, bl, br] = [0, 1, 8, 9].map((n) =>
    rampColors(PIXELS, pixels[first + n] / N)[0]);
  const [fill, ink] = rampColors(WEIGHTS, part ?? 0);
  return `color:${ink};background:linear-gradient(${fill},${fill}) 50%/` +
    `${part == null ? 0 : "34px 22px"} no-repeat,` +
    `conic-gradient(${tr} 25%,${br} 0 50%,${bl} 0 75%,${tl} 0)`;
}

/** Build the stage in `el`: one run, and a query to choose in it. */
export function stage(state, el) {
  const runs = readLedger(state);
  const { sources, seed, dtype } = state;
  const ladder = [...new Set(runs.map((run) => run.temperature))].sort((a, b) => a - b);
  let run = runs[0];
  let isTold = false;
  const board = grid("Patches of the digit", () => update(true), 60);
  board.el.classList.add("attn-patches");
  const tables = h("div", {});
  const find = (source, temperature = 1, axis = "S") => runs.find((r) =>
    r.source === source && r.temperature === temperature && r.axis === axis);
  const pickSource = choice("digit, and what makes q, k, v", sources.map(({ name }) => name),
    (n) => show(find(sources[n], run.temperature) ?? find(sources[n])));
  const pickHeat = choice("temperature", ladder, (n) => show(find(run.source, ladder[n])));
  const toggle = () => show(find(run.source, 1, run.axis === "S" ? "L" : "S"));
  const query = () => board.cursor[0] * SIDE + board.cursor[1];
  const step = (by) => {
    const to = Math.min(Math.max(query() + by, 0), N - 1);
    board.place(to >> 2, to & 3);
    update(board.hasFocus);
  };
  const { tools, keys, help } = walk(step, "patch");
  const frame = scene(el, {
    name: SCHEMA,
    style: FIGURE_STYLE,
    controls: [pickSource.el, pickHeat.el],
    body: [h("div", { class: "attn-parts" },
      h("div", {}, h("p", { class: "attn-title4" }, chip("L"), " one patch asks ",
        chip("S"), " all patches"), board.el),
      tables)],
    tools: [...tools, ["Mistake", toggle, "B"]],
    keys: { ...board.keys, ...keys, b: toggle },
    help: [["← → ↑ ↓", "choose the patch that asks"], ...help,
      ["B", "softmax over the wrong axis, on or off"]],
    home: board.focus,
    question: () => questionAt(query() + isTold),
    next: () => step(+isTold),
  });

  function show(to) {
    if (!to) return frame.say("That was not recorded here.");
    run = to;
    pickSource.select.value = sources.indexOf(run.source);
    pickHeat.select.value = ladder.indexOf(run.temperature);
    pickHeat.el.hidden = !find(run.source, ladder[0]);
    frame.press(2, run.axis === "L");
    frame.verdicts(verdictsOf(run, `${dtype} run, seed ${seed}`));
    frame.closeCard();
    update(board.hasFocus);
  }

  function questionAt(asks) {
    const id = `${seed}/${runs.indexOf(run)}/${asks}`;
    return asks < N ? { ...questionOf(run, asks), id } : null;
  }

  /** Bring everything that depends on the query up to date. */
  function update(isFocused, isShown = true) {
    isTold = isShown;
    const asks = query();
    const { weights, order } = rowOf(run, asks);
    board.update((i, j) => {
      const patch = i * SIDE + j;
      const text = isTold ? share(weights[patch]) : "";
      return {
        text,
        style: patchStyle(run.pixels, patch, isTold ? weights[patch] / weights[order[0]] : null),
        label: `patch ${patch}${text && `, weight ${text}`}`,
      };
    }, isFocused);
    showTables(tables, isTold ? [ledgerOf(run, asks)] : []);
    frame.say(isTold ? happened(run, asks) : `Patch ${asks} asks all patches.`);
    frame.compare(isTold ? questionAt(asks) : null);
  }

  board.build(Array(SIDE).fill(""), Array(SIDE).fill(""));
  board.place(1, 2);
  show(run);
  update(false, false);
  frame.open();
}
