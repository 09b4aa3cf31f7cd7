/**
 * The stage card: the source of a stage's kernels beside the arrays of the same
 * run, with one cursor. A step is one visit of a line by the threads of a block.
 *
 * Data: `stage_card.v1`, as `attention_lab.steps.stage_run` makes it.
 */
import { Refusal, chip, h, range, set } from "./base.js";
import { indices, readSteps, unroll, who } from "./recorded.js";
import { choice, figure, grid, scene } from "./scene.js";

export const FIGURE_STYLE = `
.attn-code{max-height:min(440px,50vh);overflow:auto;position:relative;flex:1 1 290px;min-width:0}
.attn-code .attn-board{grid-template-columns:max-content max-content!important;gap:0 8px;font:12px monospace}
.attn-code .attn-board span{justify-content:start;white-space:pre;border:0;padding:0 6px}
.attn-code .attn-board [aria-selected=true]{border:0;box-shadow:inset 4px 0 #3d5a80;background:var(--kept);color:#000}
.attn-code .attn-far{opacity:.75}
.attn-arrays{flex:0 1 300px;margin:0}
.attn-array{width:142px;font-size:12.5px;line-height:22px}
.attn-array .attn-spans{min-height:44px}
.attn-spans>span{display:inline-block;margin-right:8px}
.attn-map{display:grid;width:max-content;border:.5px solid #6b7280}
.attn-map i{width:9px;height:9px;border:.5px solid var(--line)}
.attn-map .attn-read{background:var(--kept)}
.attn-map .attn-write{background:#3d5a80}
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
        const now = touched.get(memory) ?? { read: [], write: [] };
        touched.set(memory, now);
        now[kind === "read" ? "read" : "write"].push(...unroll(step.elements[k]));
      });
      return { ...step, row, touched, threads: unroll(step.threads) };
    }),
  }));
}

export const NOTHING = { read: [], write: [] };

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
  let [run, at, maps] = [kernels[0], 0, []];
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
    const [x, y, z] = run.block;
    maps = [mapOf({ label: "threads", shape: y * z > 1 ? [y * z, x] : [x] }),
      ...run.memory.map((memory, n) => run.steps.some((s) => s.touched.has(n)) && mapOf(memory))];
    arrays.replaceChildren(...maps.filter(Boolean).map(({ el: one }) => one));
    go(0);
  }

  function go(to, isFocused = board.hasFocus) {
    at = Math.max(0, Math.min(to, run.steps.length - 1));
    update(isFocused, step().row);
  }

  function questionAbout(n) {
    const s = run.steps[n];
    if (!s) return null;
    const [[number, { read, write }]] = s.touched;
    const answer = new Set([...read, ...write]).size;
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
    maps.forEach((map, n) => {
      if (!map) return;
      const touched = !isStep ? NOTHING : n ? s.touched.get(n - 1) ?? NOTHING
        : { read: s.threads, write: [] };
      const ranges = map.light(touched);
      for (const verb of ["read", "write"]) {
        if (n && touched[verb].length) told.push(`${verb} ${run.memory[n - 1].label}[${ranges}]`);
      }
    });
    frame.say(isStep ? `Block ${who(s.block, run.grid)}, phase ${s.epoch}, line ` +
      `${run.source[row][0]}. Threads: ${s.threads.length}; they ${told.join(" and ")}. ` +
      `Step ${at + 1} of ${run.steps.length}.`
      : `Line ${run.source[row][0]} touches no memory that threads share.`);
    frame.compare(isStep ? questionAbout(at) : null);
  }

  show(run);
  frame.open();
}

/**
 * An array: its axes, and one slice of it in squares.
 * `light` shows what is touched and returns the ranges along the axes.
 */
export function mapOf({ label, shape }) {
  const letters = label.match(/_([BLSHDEP]+)$/)?.[1] ?? "";
  const columns = shape.at(-1);
  const rows = shape.at(-2) ?? 1;
  const texts = shape.map(() => h("span", {}));
  const cells = range(rows * columns).map(() => h("i", {}));
  const el = h("div", { class: "attn-array" }, h("strong", {}, label),
    h("div", { class: "attn-spans" }, ...texts.map((text, k) =>
      h("span", {}, letters.length === shape.length && chip(letters[k]), " ", text))),
    h("div", { class: "attn-map", style: `grid-template-columns:repeat(${columns},9px)` }, ...cells));
  return {
    el,
    light({ read, write }) {
      const all = [...read, ...write];
      const ranges = all.length ? spans(shape, all) : [];
      texts.forEach((text, k) => {
        text.textContent = `${ranges[k] ?? "–"}/${shape[k]}`;
      });
      const first = all.length ? all[0] - all[0] % cells.length : 0;
      const [reads, writes] = [new Set(read), new Set(write)];
      cells.forEach((cell, n) => set(cell, "class", writes.has(first + n) ? "attn-write"
        : reads.has(first + n) ? "attn-read" : ""));
      return ranges.join(", ");
    },
  };
}
