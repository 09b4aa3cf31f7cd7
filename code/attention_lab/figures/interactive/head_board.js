/**
 * F4, the head board: which rows of the weights make which columns of the
 * output, for every recorded number of heads; with a head off; merged wrongly.
 *
 * Data: `head_board.v1`, as `attention_lab.figures.head_board` hands it on.
 * Nothing is computed here but differences and counts of recorded numbers.
 */
import {
  checkList, checkSize, chip, decimal, extent, h, numberTable, range, readRuns, showTables,
} from "./base.js";
import { arrows, choice, figure, focused, grid, scene, walk } from "./scene.js";

const COSTS = { heads: "H", "key heads": "G", parameters: "parameters",
  FLOPs: "flops", scores: "scores" };
const BOARD_STYLE = `
.attn-board [role=gridcell]{border-style:solid}
.attn-board .attn-own{background:var(--h);color:#fff}
.attn-board .attn-own[aria-selected=true]{box-shadow:0 0 0 2px var(--h)}
.attn-board .attn-hit{outline:2px dashed var(--bad);z-index:1}
`;

/** Check what a model holds; returns the runs, or throws a Refusal. */
export function readBoard(state) {
  const runs = readRuns(state, "head_board.v1");
  const { L, E, cost } = state;
  checkSize("L", L, 8);
  checkSize("E", E, 8);
  checkList("cost", cost?.runs, 2);
  for (const run of runs) {
    const check = (part, size, ...names) => names.forEach((name) =>
      checkList(`${name} of ${run.name}`, part?.[name]?.flat(), size));
    check(run, E, "rows_q", "rows_kv");
    check(run, L * E, "heads", "tokens", "wrong_heads", "wrong_tokens");
    for (const part of [run, ...range(run.H).map((head) => run.off?.[head])]) {
      check(part, L * E, "out", "wrong_out");
    }
  }
  return runs;
}

/** Where the output changes with a head off. */
export function changed(run, head, wrong) {
  const [whole, off] = [run, run.off[head]].map((part) => part[`${wrong}out`]);
  return range(whole.length).filter((n) => whole[n] !== off[n]);
}

export default figure(stage);

/** Build the stage in `el`: rows of the weights, output, costs. */
export function stage(state, el) {
  const runs = readBoard(state);
  const { L, E } = state;
  const shown = { run: runs[0], head: 0, off: null, wrong: "", seen: new Set() };
  let asked = null;
  const rows = grid("Rows of the weights", landRow, 30);
  const out = grid("Merged output, tokens by columns", landOut, 30);
  const costs = h("div", { class: "attn-parts" });
  const pick = choice("heads", runs.map((run) => run.name),
    (n) => show({ run: runs[n] }));
  const steps = walk((by) => turn(shown.head + by), "head");
  const switchOff = () => show({ off: shown.off === shown.head ? null : shown.head });
  const spoil = () => show({ wrong: shown.wrong ? "" : "wrong_" });
  const way = (name) => shown.run[shown.wrong + name]; // merged as it is now
  const title = (...words) => h("p", { class: "attn-title4" }, ...words);
  const frame = scene(el, {
    name: "head_board",
    style: BOARD_STYLE,
    controls: [pick.el],
    body: [h("div", { class: "attn-parts" },
      h("div", {}, title("rows → head ", chip("H")), rows.el),
      h("div", {}, title("output: token ", chip("L"), " × column ", chip("E")),
        out.el))],
    results: [costs],
    tools: [
      ...steps.tools,
      ["Head off", switchOff, "O"],
      ["No permute", spoil, "B"],
    ],
    keys: { ...arrows(rows, out), ...steps.keys, o: switchOff, b: spoil },
    help: [
      ["← → ↑ ↓", "move over rows or output"],
      ...steps.help,
      ["O", "this head's rows of W_q to 0, or back"],
      ["B", "merge without the permute, or with"],
    ],
    home: () => focused(rows, out).focus(),
    question,
    next() {
      const next = question();
      next?.runs?.forEach((n) => shown.seen.add(runs[n]));
      show(next?.shows ?? {}, next);
      out.focus();
    },
  });

  /** What may be asked next: recorded questions, and what shows the answer. */
  function question() {
    const { run, head, off, wrong, seen } = shown;
    const [, most] = state.cost.runs;
    if (!seen.has(runs[most])) return { ...state.cost, shows: { run: runs[most] } };
    if (off === null) return { ...run.off[head].question, shows: { off: head } };
    const next = !wrong && run.off[off].wrong_question;
    return next ? { ...next, shows: { wrong: "wrong_" } } : null;
  }

  /** Change what is shown; the cursor keeps its place, or follows its head. */
  function show(change, toldBy = null) {
    asked = toldBy;
    if (change.run && change.run !== shown.run) shown.off = null;
    Object.assign(shown, change);
    const { run } = shown;
    shown.seen.add(run);
    pick.select.value = runs.indexOf(run);
    rows.build(range(E).map(String), ["q", "k", "v"]);
    out.build(range(L).map(String), range(E).map(String));
    frame.closeCard();
    if (change.wrong === undefined) landOut(out.cursor);
    else turn(shown.head);
  }

  function landOut([i, j]) {
    shown.head = way("heads")[i * E + j];
    rows.place(shown.run.rows_q[shown.head][0], 0);
    update();
  }

  function landRow([i, j]) {
    const heads = ownersOf(i, j);
    turn(heads.includes(shown.head) ? shown.head : heads[0] ?? shown.head, true);
  }

  /** Go to a head: where it stands in the output, in this token if it does. */
  function turn(head, fromRow) {
    const { run } = shown;
    shown.head = Math.min(Math.max(head, 0), run.H - 1);
    const own = range(L * E).filter((n) => way("heads")[n] === shown.head);
    const n = own.find((m) => Math.floor(m / E) === out.cursor[0]) ?? own[0];
    out.place(Math.floor(n / E), n % E);
    if (!fromRow) rows.place(run.rows_q[shown.head][0], 0);
    update();
  }

  /** The heads that a row of a weight makes. */
  function ownersOf(row, weight) {
    const owned = weight ? shown.run.rows_kv : shown.run.rows_q;
    return range(shown.run.H).filter((head) => owned[head].includes(row));
  }

  /** Bring everything up to date. */
  function update() {
    const { run, head, off, wrong } = shown;
    const hits = off === null ? [] : changed(run, off, wrong);
    rows.update((i, j) => {
      const heads = ownersOf(i, j);
      const text = heads.length ? extent(heads) : "";
      return {
        text,
        kind: (text ? "" : "attn-skipped ") + (heads.includes(head) ? "attn-own " : "") +
          (!j && heads[0] === off ? "attn-hit" : ""),
        label: `W_${"qkv"[j]}, row ${i}: ${text ? `head ${text}` : "not there"}`,
      };
    }, rows.hasFocus);
    out.update((i, j) => {
      const n = i * E + j;
      const [own, token] = [way("heads")[n], way("tokens")[n]];
      const isHit = hits.includes(n);
      const text = `${own}·${token}`;
      return {
        text,
        kind: (own === head ? "attn-own " : "") + (isHit ? "attn-hit" : ""),
        label: `${text} at token ${i}, column ${j}${isHit ? ", changed" : ""}`,
      };
    }, out.hasFocus);
    frame.press(2, off === head);
    frame.press(3, wrong !== "");
    frame.say(told(hits));
    frame.verdicts(way("checks") ?? []);
    frame.compare(asked);
    showTables(costs, [numberTable("what heads cost", Object.keys(COSTS),
      [...shown.seen].sort((a, b) => a.H - b.H).map((r) => ({
        numbers: Object.values(COSTS).map((key) => r[key]), isNew: r === run,
      })))]);
  }

  /** What the cursor stands on; also read aloud. */
  function told(hits) {
    const { run, head, off, wrong } = shown;
    const [i, j] = out.cursor;
    const n = i * E + j;
    const number = (part) => decimal(part[`${wrong}out`][n], 4);
    const tokens = new Set(hits.map((m) => Math.floor(m / E)));
    return `${wrong && "Merged without the permute. "}Head ${head}, turn ${head} of the ` +
      `loop. Rows of W_q: ${extent(run.rows_q[head])}; of W_k and W_v: ` +
      `${extent(run.rows_kv[head])}. Token ${i}, column ${j} holds ${number(run)}, ` +
      `made for token ${way("tokens")[n]}` +
      (off === null ? "." : `; with head ${off} off, ${number(run.off[off])}. ` +
        `Changed: ${hits.length} of ${L * E} numbers, ${tokens.size} of ${L} tokens.`);
  }

  show({});
  frame.open();
}
