/**
 * F6, the kernel lens: every warp request of recorded kernels, with its
 * threads, its 32-byte sectors or its banks, from barrier to barrier.
 *
 * Data: `kernel_lens.v1`, as `attention_lab.figures.kernel_lens` makes it of
 * recordings. Nothing is computed here but indices and counts.
 */
import { Refusal, h, range, showTables } from "./base.js";
import { elementName, readSteps, unroll, who } from "./recorded.js";
import { choice, figure, grid, scene } from "./scene.js";

export const FIGURE_STYLE = `
.attn-lens td,.attn-lens th{width:32px;height:20px}
.attn-lens td{box-shadow:inset 0 0 0 .5px var(--line)}
.attn-lens td.attn-cell{background:var(--kept);color:#000}
.attn-lens td.attn-bad{background:var(--bad);color:#fff}
.attn-board .attn-off{box-shadow:inset 0 0 0 3px var(--bad)}
.attn-lines{table-layout:auto!important}
.attn-lines td{text-align:left!important;padding:3px 10px 3px 6px!important;white-space:pre;line-height:1.4}
.attn-lines .attn-here{box-shadow:inset 3px 0;font-weight:700}
`;

export default figure(stage);

/** Check the data; every version with its requests, unrolled. */
export function readLens(state) {
  if (state?.schema !== "kernel_lens.v1" || !state.versions?.length) {
    throw new Refusal(`it needs versions of kernel_lens.v1, not ${state?.schema}.`);
  }
  return state.versions.map(({ name, verdicts, recording: run }) => {
    const size = run?.block?.reduce((a, b) => a * b);
    if (size > 128) {
      throw new Refusal(`a block of ${name} has ${size} threads; at most 128 can be drawn.`);
    }
    let [stretch, before] = [-1, null];
    const steps = readSteps(run, "request").map((step) => {
      const site = run.sites[step.site];
      if (!site) throw new Refusal(`${name} has no site ${step.site}.`);
      if (`${[step.block, step.epoch]}` !== before) stretch += 1;
      before = `${[step.block, step.epoch]}`;
      const memory = run.memory[site.memory];
      const units = unroll(step.addresses).map((address) => Math.floor(address / 4));
      return {
        ...step, ...site, memory, units, stretch, threads: unroll(step.threads),
        elements: unroll(step.elements), ...costOf(memory, units),
      };
    });
    return { ...run, name, verdicts, steps, size, width: Math.min(run.block[0], 8) };
  });
}

/** What a request costs: sectors, or passes over the banks; as rows of words. */
export function costOf({ space }, units) {
  const words = [...new Set(units)].sort((a, b) => a - b);
  if (space === "global") {
    const rows = [...new Set(words.map((word) => word >> 3))];
    return { rows, cost: rows.length, unit: "sectors" };
  }
  const banks = range(32).map((bank) => words.filter((word) => word % 32 === bank).length);
  return { rows: range(4), banks, cost: Math.max(...banks), unit: "passes" };
}

/** The threads of one block that hazards name; two may stand in two blocks. */
export function guiltyIn(hazards, block) {
  return hazards.flatMap(({ threads, blocks }) =>
    threads.filter((_, k) => (blocks[k] ?? blocks[0]) === block));
}

/** Build the stage in `el`. */
export function stage(state, el) {
  const versions = readLens(state);
  const racy = versions.find((run) => run.hazards.length);
  let [run, at, thread] = [versions[0], 0, 0];
  const step = () => run.steps[at];
  const board = grid("", ([i, j], isFocused) => {
    thread = Math.min(i * run.width + j, run.size - 1);
    update(isFocused);
  }, 32);
  const enter = (stretch) => go(run.steps.findIndex((s) => s.stretch === stretch));
  const pickRun = choice("kernel", versions.map(({ name }) => name), (n) => show(versions[n]));
  const pickStretch = choice("between barriers", [], enter);
  const lines = h("div", {
    class: "attn-scroll", tabindex: "0", role: "group", "aria-label": "accesses of this thread",
  });
  const units = h("div", { class: "attn-parts" });
  const frame = scene(el, {
    name: "kernel_lens", style: FIGURE_STYLE,
    controls: [pickRun.el, pickStretch.el],
    body: [h("div", { class: "attn-parts" }, board.el, lines)],
    results: [units],
    tools: [
      ["Step", () => go(at + 1), "Space"],
      ["Next phase", () => enter(step().stretch + 1), "PgDn"],
      ["Thread", other, "T"],
      ["Hazard", toggle, "B"],
    ],
    keys: {
      ...board.keys, " ": () => go(at + 1), b: toggle, t: other, Home: () => go(0), End: () => go(Infinity),
      PageDown: () => enter(step().stretch + 1), PageUp: () => enter(step().stretch - 1),
    },
    help: [
      ["← → ↑ ↓", "choose a thread"],
      ["T", "the next thread"],
      ["Space", "next request of a warp"],
      ["PgDn, PgUp", "next, previous stretch between barriers"],
      ["Home, End", "first, last request"],
      ["B", "a version with a hazard, and back"],
    ],
    home: board.focus,
    question: () => questionAbout(next()),
    next: () => go(next()),
  });

  function other() {
    thread = (thread + 1) % run.size;
    update(board.hasFocus);
  }

  function toggle() {
    if (racy) show(run === racy ? versions[0] : racy);
    else frame.say("No version recorded here has a hazard.");
  }

  /** The first request of another line after this one. */
  function next() {
    const found = run.steps.findIndex((s, n) => n > at && s.site !== step().site);
    return found < 0 ? run.steps.length : found;
  }

  function show(version) {
    run = version;
    pickRun.select.value = versions.indexOf(run);
    frame.press(3, run === racy);
    board.build(range(Math.ceil(run.size / run.width)).map(() => ""),
      range(run.width).map(() => ""), `threads of a block of ${run.name}`);
    const [hazard] = run.hazards;
    thread = hazard?.threads[0] ?? 0;
    pickStretch.fill(run.steps.filter((s, n) => s.stretch !== run.steps[n - 1]?.stretch)
      .map((s) => `block ${who(s.block, run.grid)}, phase ${s.epoch}`));
    frame.note(...run.hazards.map(({ kind, sentence }) => `${kind}: ${sentence} `));
    frame.verdicts(run.verdicts);
    frame.closeCard();
    go(run.steps.findIndex((s) => s.block === (hazard?.blocks[0] ?? s.block)));
  }

  function go(to) {
    if (to < 0) return; // no such stretch
    at = Math.min(to, run.steps.length - 1);
    update(board.hasFocus);
  }

  /** Ask what a request will cost. */
  function questionAbout(n) {
    const s = run.steps[n];
    const options = s && [...new Set([1, 4, 8, 32, s.cost])].sort((a, b) => a - b);
    return s && {
      id: `${run.name}/${run.source_sha256}/${n}`,
      text: `Next is line ${s.line}: ${s.text}. ${s.threads.length} lanes ${s.kind} ` +
        `${s.memory.label}. How many ${s.unit === "passes" ? "passes over the banks"
          : "sectors of 32 bytes"} does that take?`,
      options: options.map(String), answer: options.indexOf(s.cost),
    };
  }

  function update(isFocused) {
    const s = step();
    const lane = s.threads.indexOf(thread);
    const guilty = guiltyIn(run.hazards, s.block);
    board.place(Math.floor(thread / run.width), thread % run.width);
    board.update((i, j) => {
      const t = i * run.width + j;
      const [isIn, isBad] = [s.threads.includes(t), guilty.includes(t)];
      const name = who(t, run.block).replace(/[() ]/g, "");
      return {
        text: t < run.size ? `${isBad ? "✗" : ""}${name}` : "",
        kind: `${isIn ? "attn-seen" : "attn-skipped"}${isBad ? " attn-off" : ""}`,
        // What is written must stand in the name, or speech input misses it.
        label: `thread ${isBad ? "✗" : ""}${name}${isIn ? "" : ", not in this request"}` +
          (isBad ? ", part of a hazard" : ""),
      };
    }, isFocused);
    pickStretch.select.value = s.stretch;
    frame.say(`Thread ${who(thread, run.block)} of block ${who(s.block, run.grid)}, line ${s.line}: ` +
      (lane < 0 ? "it takes no part" : `${s.kind} ${elementName(s.memory, s.elements[lane])}`) +
      `. Request ${at + 1} of ${run.steps.length}: ${s.threads.length} lanes, ${s.unit}: ${s.cost}.`);
    showTables(lines, [linesOf(run, s, thread)]);
    showTables(units, [unitsOf(s)]);
    frame.compare(questionAbout(at));
  }

  show(run);
  frame.open();
}

/** What a thread does between two barriers: one row per access of the source. */
export function linesOf(run, { stretch, epoch, site }, thread) {
  const mine = new Map();
  for (const s of run.steps.filter((other) => other.stretch === stretch)) {
    const found = mine.get(s.site) ?? { ...s, names: [] };
    mine.set(s.site, found);
    const lane = s.threads.indexOf(thread);
    if (lane >= 0) found.names.push(elementName(s.memory, s.elements[lane]));
  }
  const bad = run.hazards.flatMap((hazard) => hazard.lines);
  return h("table", { class: "attn-lines" },
    h("caption", {}, `Thread ${who(thread, run.block)}, phase ${epoch}`),
    h("tbody", {}, ...[...mine.values()].map(({ site: own, line, kind, text, memory, names }) =>
      h("tr", {},
        h("td", { class: own === site && "attn-here" }, `${bad.includes(line) ? "✗ " : ""}${line}`),
        h("td", {}, `${text}\n${kind} ${names[0] ?? `${memory.label}: nothing`}` +
          (names.length > 1 ? ` … ${names.at(-1).replace(/.*\[/, "[")}, ${names.length} times` : ""))))));
}

/** One row per sector and a square per 4 bytes; or the 32 banks. */
export function unitsOf({ memory, threads, units, rows, banks, cost, unit }) {
  return h("table", { class: "attn-lens" },
    h("caption", {}, `${memory.label}, ${unit}: ${cost}; number: ` +
      (banks ? "words of a bank" : "thread")),
    h("tbody", {}, ...rows.map((row) => h("tr", {},
      h("th", { scope: "row" }, `${banks ? row * 8 : row - rows[0]}`),
      ...range(8).map((word) => {
        const lanes = threads.filter((_, k) => units[k] === row * 8 + word);
        const many = banks ? banks[row * 8 + word] : lanes.length;
        return h("td", {
          class: many ? `attn-cell${banks && many > 1 ? " attn-bad" : ""}` : "",
        }, !many ? "" : banks ? `${many}` : many > 1 ? `${many}×` : `${lanes[0]}`);
      })))));
}
