/**
 * The stage card: the source of a stage's kernels beside the arrays of the same
 * run, with one cursor. A step is one visit of a line by the threads of a block.
 *
 * Data: `stage_card.v1`, as `attention_lab.steps.stage_run` makes it.
 */
import { Refusal, chip, h, range, showTables } from "./base.js";
import { indices, readSteps, unroll, who } from "./recorded.js";
import { choice, figure, grid, scene } from "./scene.js";

export const FIGURE_STYLE = `
.attn-code{max-height:360px;overflow:auto;position:relative;flex:1 1 290px;min-width:0}
.attn-code .attn-board{grid-template-columns:max-content max-content!important;gap:0 8px;font-family:monospace;font-size:12px}
.attn-code .attn-board span{justify-content:start;white-space:pre;border:0;padding:0 6px}
.attn-code .attn-board [aria-selected=true]{border:0;box-shadow:inset 4px 0 var(--l);background:var(--kept);color:#000}
.attn-code .attn-far{opacity:.75}
.attn-arrays{flex:0 1 300px}
.attn-map td{width:11px;height:11px;box-shadow:inset 0 0 0 .5px var(--line)}
.attn-map td.attn-seen{background:var(--kept)}
.attn-map td.attn-d{background:var(--l)}
.attn-map caption{font-size:12.5px;height:24px}
`;

export default figure(stage);

/** Check the data; every kernel with its steps, and what they touch. */
export function readCard(state) {
  if (state?.schema !== "stage_card.v1" || !state.kernels?.length) {
    throw new Refusal(`it needs kernels of stage_card.v1, not ${state?.schema}.`);
  }
  return state.kernels.map(({ recording: run, source }) => ({
    ...run, source,
    steps: readSteps(run, "line").map((step) => {
      const sites = step.sites.map((n) => run.sites[n]);
      const row = source.findIndex(([line]) => line === sites[0]?.line);
      if (row < 0) throw new Refusal(`${run.kernel} visits a line that it does not list.`);
      const touched = new Map();
      sites.forEach(({ memory, kind }, k) => {
        const now = touched.get(memory) ?? { reads: [], writes: [] };
        touched.set(memory, now);
        now[kind === "read" ? "reads" : "writes"].push(...unroll(step.elements[k]));
      });
      return { ...step, row, touched, threads: unroll(step.threads) };
    }),
  }));
}

/** "0–3", "5": the range of one axis among the elements touched. */
export function spans(shape, elements) {
  const all = elements.map((element) => indices(element, shape));
  return shape.map((_, axis) => {
    const [low, high] = [Math.min, Math.max].map((f) => f(...all.map((index) => index[axis])));
    return low === high ? `${low}` : `${low}–${high}`;
  });
}

/** Build the stage in `el`. */
export function stage(state, el) {
  const kernels = readCard(state);
  let [run, at] = [kernels[0], 0];
  const step = () => run.steps[at];
  const board = grid("source", ([i], isFocused) => {
    const later = run.steps.findIndex((s, n) => s.row === i && n >= at);
    const found = later < 0 ? run.steps.findIndex((s) => s.row === i) : later;
    if (found >= 0) go(found, isFocused);
    else update(isFocused, i);
  }, 24);
  const code = h("div", { class: "attn-code" }, board.el);
  const arrays = h("div", { class: "attn-arrays attn-parts" });
  const pick = choice("kernel", kernels.map((k) => k.kernel), (n) => show(kernels[n]));
  const enter = (by) => {
    const key = (s) => `${[s.block, s.epoch]}`;
    const keys = [...new Set(run.steps.map(key))];
    const wanted = keys[keys.indexOf(key(step())) + by];
    if (wanted) go(run.steps.findIndex((s) => key(s) === wanted));
  };
  const frame = scene(el, {
    name: "stage_card", style: FIGURE_STYLE, controls: [pick.el],
    body: [h("div", { class: "attn-parts" }, code, arrays)],
    tools: [
      ["Step", () => go(at + 1), "Space"], ["Back", () => go(at - 1), "←"],
      ["Next phase", () => enter(1), "PgDn"],
    ],
    keys: {
      ...board.keys, " ": () => go(at + 1), ArrowRight: () => go(at + 1),
      ArrowLeft: () => go(at - 1), PageDown: () => enter(1), PageUp: () => enter(-1),
      Home: () => go(0), End: () => go(run.steps.length - 1),
    },
    help: [
      ["Space, →", "next line that touches memory"],
      ["←", "the line before"],
      ["↑ ↓", "move in the source: the next visit of that line"],
      ["PgDn, PgUp", "next, previous stretch between barriers"],
      ["Home, End", "first, last step"],
    ],
    home: board.focus,
    question: () => questionAbout(at + 1),
    next: () => go(at + 1),
  });

  function show(other) {
    run = other;
    pick.select.value = kernels.indexOf(run);
    board.build(run.source.map(([line]) => `${line}`), [""], `source of ${run.kernel}`);
    frame.verdicts(state.verdicts);
    frame.closeCard();
    arrays.replaceChildren();
    go(0);
  }

  function go(to, isFocused = board.hasFocus) {
    at = Math.max(0, Math.min(to, run.steps.length - 1));
    update(isFocused, step().row);
  }

  function questionAbout(n) {
    const s = run.steps[n];
    if (!s) return null;
    const [[number, { reads, writes }]] = s.touched;
    const answer = new Set([...reads, ...writes]).size;
    const options = [...new Set([1, s.threads.length, answer, 2 * answer])].sort((a, b) => a - b);
    return {
      id: `${run.kernel}/${run.source_sha256}/${n}`,
      text: `Next is line ${run.source[s.row].join(": ")}. How many elements of ` +
        `${run.memory[number].label} do ${s.threads.length} threads touch there?`,
      options: options.map(String), answer: options.indexOf(answer),
    };
  }

  /** Light a line of the source, and what it touches if it is a step's. */
  function update(isFocused, row) {
    const s = step();
    const isStep = row === s.row;
    board.place(row, 0);
    board.update((i) => ({
      text: run.source[i][1], kind: run.steps.some((other) => other.row === i) ? "" : "attn-far",
      label: `line ${run.source[i].join(": ")}`,
    }), isFocused);
    const lit = board.el.querySelector("[aria-selected=true]");
    code.scrollTop = lit.offsetTop - 160;
    const told = [];
    const [x, y, z] = run.block;
    const who_ = { reads: isStep ? s.threads : [], writes: [] };
    showTables(arrays, [
      mapOf({ label: "threads of the block", shape: [y * z, x] }, who_),
      ...run.memory.map((memory, number) => {
        const touched = (isStep && s.touched.get(number)) || { reads: [], writes: [] };
        for (const [verb, all] of Object.entries(touched)) {
          if (all.length) told.push(`${verb} ${memory.label}[${spans(memory.shape, all).join(", ")}]`);
        }
        return memory.space !== "local" && mapOf(memory, touched);
      }).filter(Boolean),
    ]);
    const many = s.threads.length;
    frame.say(isStep ? `Block ${who(s.block, run.grid)}, phase ${s.epoch}, line ` +
      `${run.source[row][0]}: ${many} thread${many > 1 ? "s" : ""}, ${told.join(", ")}. ` +
      `Step ${at + 1} of ${run.steps.length}.`
      : `Line ${run.source[row][0]} touches no memory that threads share.`);
    frame.compare(isStep ? questionAbout(at) : null);
  }

  show(run);
  frame.open();
  return () => el.replaceChildren();
}

/** An array: its axes with what is touched of each, and one slice in squares. */
export function mapOf({ label, shape }, { reads, writes }) {
  const all = [...reads, ...writes];
  const letters = label.match(/_([BLSHDEP]+)$/)?.[1] ?? "";
  const columns = shape.at(-1);
  const rows = shape.length > 1 ? shape.at(-2) : 1;
  const slice = all.length ? Math.floor(Math.min(...all) / (rows * columns)) : 0;
  const touched = all.length ? spans(shape, all) : shape.map(() => "–");
  return h("table", { class: "attn-map" },
    h("caption", {}, `${label} `, ...shape.flatMap((size, k) =>
      [letters.length === shape.length && chip(letters[k]), ` ${touched[k]} of ${size} `].filter(Boolean))),
    h("tbody", {}, ...range(rows).map((i) => h("tr", {}, ...range(columns).map((j) => {
      const element = (slice * rows + i) * columns + j;
      return h("td", {
        class: writes.includes(element) ? "attn-d" : reads.includes(element) ? "attn-seen" : "",
      });
    })))));
}
