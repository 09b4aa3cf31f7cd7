/**
 * F5, the packing map: where each row of a fused weight goes when its layout
 * changes, and what it is read as when nobody moves it.
 *
 * Data: `packing_map.v1`, as `attention_lab.figures.qkv_map` hands it on.
 * Nothing is computed here but comparisons and counts of recorded rows.
 */
import {
  checkList, checkSize, h, numberTable, range, readRuns, showTables,
} from "./base.js";
import { arrows, choice, figure, focused, grid, scene, walk } from "./scene.js";

const MAP_STYLE = `
.attn-board .attn-q{--own:var(--l)}.attn-board .attn-k{--own:var(--s)}
.attn-board .attn-v{--own:#b83280}
.attn-board [role=gridcell]{border-style:solid;background:var(--own);color:#fff}
.attn-board .attn-hit{outline:2px dashed var(--bad);z-index:1}
.attn-board [aria-selected=true]{box-shadow:0 0 0 2px var(--own)}
`;

/** Check what a model holds; returns the runs, or throws a Refusal. */
export function readMap(state) {
  const runs = readRuns(state, "packing_map.v1");
  checkSize("E", state.E, 8);
  for (const run of runs) {
    const many = (run.H + 2 * run.G) * run.D;
    checkSize(`of the rows of ${run.name}`, many, 24);
    checkList(`names of ${run.name}`, run.names?.map(() => 0), many);
    for (const [layout, rows] of Object.entries(run.layouts)) {
      checkList(`layout (${layout}) of ${run.name}`, rows, many);
    }
  }
  return runs;
}

/** Which rows hold something else than the target says. */
export function misread(run, { source, target }) {
  const [there, read] = [run.layouts[source], run.layouts[target]];
  return range(there.length).filter((row) => there[row] !== read[row]);
}

export default figure(stage);

/** Build the stage in `el`: a weight before and after its layout changes. */
export function stage(state, el) {
  const runs = readMap(state);
  const { E } = state;
  const shown = { run: runs[0], pair: runs[0].pairs[0], row: 0, wrong: "" };
  let asked = null;
  const from = grid("Rows before", ([i, j]) => go(i * E + j), 32);
  const to = grid("Rows after", ([i, j]) => go(sourceOf(i * E + j)), 32);
  const titles = [from, to].map(() => h("p", { class: "attn-title4" }));
  const costs = h("div", { class: "attn-parts" });
  const pick = choice("heads", runs.map((run) => run.name),
    (n) => show({ run: runs[n], pair: runs[n].pairs[0] }));
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.layouts)))];
  const picks = ["source", "target"].map((end, n) => choice(["from", "to"][n],
    names.map((name) => `(${name})`), (place) => chooseEnd(end, names[place])));
  const last = () => shown.run.names.length - 1;
  const steps = walk((by) => go(shown.row + by), "row");
  const spoil = () => show({ wrong: shown.wrong ? "" : "wrong_" });
  const swap = () => chooseEnd("source", shown.pair.target);
  const question = () => (shown.wrong ? null : shown.pair.question);
  const frame = scene(el, {
    name: "packing_map",
    style: MAP_STYLE,
    controls: [pick, ...picks].map((one) => one.el),
    body: [h("div", { class: "attn-parts" },
      ...[from, to].map((board, n) => h("div", {}, titles[n], board.el)))],
    results: [costs],
    tools: [
      ...steps.tools,
      ["Swap", swap, "X"],
      ["Move nothing", spoil, "B"],
    ],
    keys: { ...arrows(from, to), ...steps.keys, x: swap, b: spoil },
    help: [
      ["← → ↑ ↓", "move over the rows"],
      ...steps.help,
      ["X", "swap the two layouts"],
      ["B", "take one layout for the other, or convert"],
    ],
    home: () => focused(from, to).focus(),
    question,
    next() {
      const next = question();
      show(next ? { wrong: "wrong_" } : {}, next);
      from.focus();
    },
  });

  /** Where a row stands in the second weight, and where one there came from. */
  function targetOf(row) {
    const { run, pair, wrong } = shown;
    return wrong ? row : run.layouts[pair.target].indexOf(run.layouts[pair.source][row]);
  }

  function sourceOf(row) {
    return range(last() + 1).find((n) => targetOf(n) === row) ?? last();
  }

  /** Take another layout at one end, in the first run that has it. */
  function chooseEnd(end, layout) {
    const other = end === "source" ? "target" : "source";
    const kept = shown.pair[shown.pair[other] === layout ? end : other];
    for (const run of [shown.run, ...runs]) {
      const having = run.pairs.filter((pair) => pair[end] === layout);
      const pair = having.find((one) => one[other] === kept) ?? having[0];
      if (pair) return show({ run, pair });
    }
  }

  /** Change what is shown. */
  function show(change, toldBy = null) {
    asked = toldBy;
    Object.assign(shown, change);
    const { run, pair } = shown;
    pick.select.value = runs.indexOf(run);
    picks[0].select.value = names.indexOf(pair.source);
    picks[1].select.value = names.indexOf(pair.target);
    const lines = range(Math.ceil(run.names.length / E)).map((i) => `${i * E}`);
    [from, to].forEach((board) => board.build(lines, range(E).map(String)));
    frame.closeCard();
    go(Math.min(shown.row, last()));
  }

  /** Go to a row of the first weight. */
  function go(row) {
    shown.row = Math.min(Math.max(row, 0), last());
    update();
  }

  /** Bring everything up to date. */
  function update() {
    const { run, pair, row, wrong } = shown;
    const { [pair.source]: before, [pair.target]: after } = run.layouts;
    const there = targetOf(row);
    const place = (board, n) => board.place(Math.floor(n / E), n % E);
    place(from, row);
    place(to, there);
    // What is read is written; the colour says what is there.
    const look = (read, holds) => (i, j) => {
      const n = i * E + j;
      const [text, real] = [read, holds].map((rows) => run.names[rows[n]] ?? "");
      const isHit = text !== real;
      return {
        text,
        kind: real && `attn-${real[0]}${isHit ? " attn-hit" : ""}`,
        label: text ? `${text} in row ${n}${isHit ? `, but it holds ${real}` : ""}` : `no row ${n}`,
      };
    };
    from.update(look(before, before), from.hasFocus);
    to.update(look(after, wrong ? before : after), to.hasFocus);
    titles[0].replaceChildren(`a weight in (${pair.source})`);
    titles[1].replaceChildren(`${wrong ? "read as" : "converted to"} (${pair.target})`);
    frame.note(wrong ? "In the second weight letters say what is read, colours what is there." : "");
    frame.press(3, wrong !== "");
    const [name, read] = [run.names[before[row]], run.names[after[row]]];
    frame.say(wrong
      ? `Row ${row} holds ${name}, and is read as ${read}. ${misread(run, pair).length} of ` +
        `${last() + 1} rows are read as something else; the output moves by ` +
        `${Math.round(100 * pair.change)} % of its size.`
      : `Row ${row} is ${name}: role, head, channel. It goes to row ${there}.`);
    frame.verdicts(pair[`${wrong}checks`] ?? []);
    frame.compare(asked);
    const { traffic } = run;
    showTables(costs, traffic ? [numberTable("split by kernels",
      ["weights", "launches", "bytes"], ["separate", "fused"].map((kind, n) =>
        ({ numbers: [kind, traffic.launches[n], traffic.bytes[n]] }))),
    numberTable("32-byte sectors read", Object.keys(traffic.sectors).map((x) => `(${x})`),
      [{ numbers: Object.values(traffic.sectors) }])] : []);
  }

  show({});
  frame.open();
}
