/**
 * F4, the head board: which rows of the weights make which columns of the
 * output, for every recorded number of heads; with a head off; merged wrongly.
 *
 * Data: `head_board.v1`, as `attention_lab.steps.head_board` writes it.
 * Nothing is computed here but differences and counts of recorded numbers.
 */
import { Refusal, chip, decimal, errorText, h, range, showTables } from "./base.js";
import { choice, figure, grid, scene } from "./scene.js";

export const SCHEMA = "head_board.v1";
export const MOST = 8;
const COSTS = [["heads", "H"], ["key heads", "G"], ["parameters", "parameters"],
  ["FLOPs", "flops"], ["scores", "scores"]];
const BOARD_STYLE = `
.attn-boards{display:flex;flex-wrap:wrap;gap:14px 32px}
.attn-board [role=gridcell]{border-style:solid}
.attn-board .attn-own{background:var(--h);color:#fff}
.attn-board .attn-hit{outline:2px dashed var(--bad);outline-offset:1px;z-index:1}
`;

/** Check what a model holds; returns the runs, or throws a Refusal. */
export function readBoard(state) {
  if (state?.schema !== SCHEMA) {
    throw new Refusal(`it needs data of schema ${SCHEMA}, not ${state?.schema}.`);
  }
  const { runs, L, E } = state;
  if (!Array.isArray(runs) || !runs.length) {
    throw new Refusal("the recording holds no run.");
  }
  for (const [axis, size] of [["L", L], ["E", E]]) {
    if (!(size >= 1 && size <= MOST)) {
      throw new Refusal(`axis ${axis} has size ${size}; at most ${MOST} can be drawn.`);
    }
  }
  for (const run of runs) {
    const lists = [run, ...run.off ?? []].flatMap((part) => [part.out, part.wrong_out]);
    const heads = [run.off, run.rows_q, run.rows_kv];
    if (run.H * run.D !== E || heads.some((list) => list?.length !== run.H)) {
      throw new Refusal(`${run.H} heads of ${run.D} do not fill axis E = ${E}.`);
    }
    for (const list of [run.origin, run.wrong_origin, ...lists]) {
      if (list?.length !== L * E) {
        throw new Refusal(`an output of ${run.name} has ${list?.length ?? "no"} ` +
          `numbers, not L·E = ${L * E}.`);
      }
      if (!list.every(Number.isFinite)) {
        throw new Refusal(`an output of ${run.name} holds what is not a number.`);
      }
    }
  }
  return runs;
}

/** "2–3", or "2" alone. */
export function span(places) {
  const [first, last] = [Math.min(...places), Math.max(...places)];
  return first === last ? `${first}` : `${first}–${last}`;
}

/** The head and the token that a place of the output holds. */
export function whence(run, L, place, isWrong) {
  const element = (isWrong ? run.wrong_origin : run.origin)[place];
  return [Math.floor(element / (L * run.D)), Math.floor(element / run.D) % L];
}

/** Where the output changes with a head off. */
export function changed(run, head, isWrong) {
  const key = isWrong ? "wrong_out" : "out";
  return range(run[key].length).filter((n) => run[key][n] !== run.off[head][key][n]);
}

/** What was checked on a run. */
export function verdictsOf(run, isWrong, { seed, dtype }) {
  const held = `${dtype}, seed ${seed}`;
  const outside = Math.max(...run.off.map((part) => part.outside));
  const error = isWrong ? run.wrong_error : run.error;
  return [
    ["output against the reference", error <= run.bound, `off by ${errorText(error)}`,
      `≤ ${errorText(run.bound)}; ${held}`],
    ["loop − all at once", run.loop_error <= run.loop_bound,
      `off by ${errorText(run.loop_error)}`, `≤ ${errorText(run.loop_bound)}; ${held}`],
    ["q, k, v of whole numbers, loop − all at once", run.whole_error === 0,
      `off by ${errorText(run.whole_error)}`, `exactly 0; ${held}`],
    ["FLOPs, loop ÷ all at once", run.loop_flops === run.flops,
      (run.loop_flops / run.flops).toFixed(4),
      `${run.loop_flops} of ${run.flops}; PyTorch's counter`],
    ["each head off, change outside its columns", outside === 0,
      errorText(outside), `exactly 0; merged right; ${held}`],
  ].map(([label, passed, value, how]) => ({ label, passed, value, held: how }));
}

/** A question with its recorded answer. */
export function questionOf(runs, shown, L) {
  const { run, head, off, isWrong, seen } = shown;
  const plain = runs.filter((r) => r.G === r.H);
  const [one, many] = [Math.min, Math.max].map((pick) =>
    plain.find((r) => r.H === pick(...plain.map((p) => p.H))));
  if (many && !seen.has(many)) {
    const [p, f] = ["parameters", "flops"].map((key) => many[key] === one[key]);
    return {
      id: "cost", runs: [one, many],
      text: `Take ${many.H} heads instead of ${one.H}, in a model of the same ` +
        "width. What grows: the parameters, the FLOPs of the matrix products?",
      options: ["neither", "the FLOPs", "the parameters", "both"],
      answer: (f ? 0 : 1) + (p ? 0 : 2),
    };
  }
  if (off === null) {
    const sizes = [run.D, L * run.D, run.out.length];
    const options = [...new Set(sizes)];
    return {
      id: `off/${run.name}/${head}`, off: head,
      text: `Set head ${head}'s rows of W_q to 0. How many of the ` +
        `${run.out.length} numbers of the output change?`,
      options: options.map(String),
      answer: options.indexOf(changed(run, head, isWrong).length),
    };
  }
  if (isWrong || run.H === 1) return null;
  const tokens = new Set(changed(run, off, true).map((n) =>
    Math.floor(n / (run.out.length / L)))).size;
  return {
    id: `merge/${run.name}/${off}`, isWrong: true,
    text: `Head ${off} is off, so each of the ${L} tokens has changed. Now merge ` +
      "without the permute. In how many tokens does the change stand then?",
    options: range(L).map((n) => String(n + 1)), answer: tokens - 1,
  };
}

export default figure(stage);

/** Build the stage in `el`: rows of the weights, output, costs. */
export function stage(state, el) {
  const runs = readBoard(state);
  const { L, E } = state;
  const shown = { run: runs[0], head: 0, off: null, isWrong: false, seen: new Set() };
  let asked = null;
  const rows = grid("Rows of the weights", landRow, 34);
  const out = grid("Merged output, tokens by columns", landOut, 30);
  const active = () => (rows.hasFocus ? rows : out);
  const costs = h("div", { class: "attn-scroll", tabindex: "0", role: "group",
    "aria-label": "What the heads cost" });
  const pick = choice("heads", runs.map((run) => run.name), (n) => show(runs[n]));
  const arrow = (key) => [key, () => active().keys[key]()];
  const frame = scene(el, {
    name: "head_board",
    style: BOARD_STYLE,
    controls: [pick.el],
    body: [h("div", { class: "attn-boards" },
      h("div", {}, h("p", { class: "attn-title4" }, "rows, by head ", chip("H")), rows.el),
      h("div", {}, h("p", { class: "attn-title4" }, "output: token ", chip("L"),
        " × column ", chip("E")), out.el))],
    results: [costs],
    tools: [
      ["Next head", () => turn(shown.head + 1), "Space"],
      ["Back", () => turn(shown.head - 1), "PgUp"],
      ["Head off", switchOff, "O", { "aria-pressed": "false" }],
      ["No permute", spoil, "B", { "aria-pressed": "false" }],
    ],
    keys: {
      ...Object.fromEntries(Object.keys(out.keys).map(arrow)),
      " ": () => turn(shown.head + 1), PageDown: () => turn(shown.head + 1),
      PageUp: () => turn(shown.head - 1), Home: () => turn(0),
      End: () => turn(shown.run.H - 1), o: switchOff, b: spoil,
    },
    help: [
      ["← → ↑ ↓", "move over the rows, or over the output"],
      ["Space", "next head, the loop's next turn (also PgDn)"],
      ["PgUp", "the head before"],
      ["Home, End", "first head, last head"],
      ["O", "this head's rows of W_q to 0, or back"],
      ["B", "merge without the permute, or right"],
    ],
    home: () => active().focus(),
    question,
    next() {
      asked = question();
      if (asked?.runs) {
        asked.runs.forEach((run) => shown.seen.add(run));
        show(asked.runs[1]);
      } else if (asked) {
        Object.assign(shown, asked.off !== undefined
          ? { off: asked.off } : { isWrong: true });
        update();
      }
    },
  });

  function question() {
    return questionOf(runs, shown, L);
  }

  /** Show another run, with the cursor on the same number of the output. */
  function show(run) {
    if (shown.run !== run) Object.assign(shown, { run, off: null });
    shown.seen.add(run);
    pick.select.value = runs.indexOf(run);
    rows.build(range(E).map(String), ["q", "k", "v"], `Rows of the weights, ${run.name}`);
    out.build(range(L).map(String), range(E).map(String));
    frame.closeCard();
    landOut(out.cursor, false);
  }

  function switchOff() {
    shown.off = shown.off === shown.head ? null : shown.head;
    update();
  }

  function spoil() {
    shown.isWrong = !shown.isWrong;
    landOut(out.cursor, false);
  }

  function landRow([i, j], isFocused) {
    const owners = ownersOf(i, j);
    if (owners.length) shown.head = owners.includes(shown.head) ? shown.head : owners[0];
    update(isFocused && rows, owners.length ? null
      : `W_${"qkv"[j]} has no row ${i}: ${shown.run.G} key heads need fewer.`);
  }

  function landOut([i, j], isFocused) {
    [shown.head] = whence(shown.run, L, i * E + j, shown.isWrong);
    rows.place(shown.run.rows_q[shown.head][0], 0);
    update(isFocused && out);
  }

  /** Go to a head: its first column, of the token where the cursor is. */
  function turn(head) {
    const { run } = shown;
    shown.head = Math.min(Math.max(head, 0), run.H - 1);
    const places = range(L * E).filter((n) =>
      whence(run, L, n, shown.isWrong)[0] === shown.head);
    const here = places.find((n) => Math.floor(n / E) === out.cursor[0]) ?? places[0];
    out.place(Math.floor(here / E), here % E);
    rows.place(run.rows_q[shown.head][0], 0);
    update(rows.hasFocus ? rows : out.hasFocus && out);
  }

  /** The heads that a row of a weight makes. */
  function ownersOf(row, weight) {
    const { run } = shown;
    return range(run.H).filter((head) =>
      (weight ? run.rows_kv : run.rows_q)[head].includes(row));
  }

  /** Bring everything up to date; `focused` is the grid to keep the focus. */
  function update(focused = false, instead = null) {
    const { run, head, off, isWrong } = shown;
    const hits = new Set(off === null ? [] : changed(run, off, isWrong));
    rows.update((i, j) => {
      const owners = ownersOf(i, j);
      return {
        text: owners.length ? span(owners) : "",
        kind: (owners.includes(head) ? "attn-own" : owners.length ? "" : "attn-skipped") +
          (j === 0 && owners[0] === off ? " attn-hit" : ""),
        label: `row ${i} of W_${"qkv"[j]}: ` +
          (owners.length ? `head ${span(owners)}` : "not there"),
      };
    }, focused === rows);
    out.update((i, j) => {
      const [own, token] = whence(run, L, i * E + j, isWrong);
      return {
        text: `${own}·${token}`,
        kind: (own === head ? "attn-own" : "") + (hits.has(i * E + j) ? " attn-hit" : ""),
        label: `token ${i}, column ${j}: head ${own} of token ${token}` +
          (hits.has(i * E + j) ? ", changed" : ""),
      };
    }, focused === out);
    [off === head, isWrong].forEach((on, n) =>
      frame.tools[n + 2].setAttribute("aria-pressed", `${on}`));
    frame.note(...(isWrong ? [h("strong", {}, "Mistake: merge without the permute. "),
      "The shape is right; heads and tokens are mixed."] : []));
    frame.say(instead ?? told(hits));
    frame.verdicts(verdictsOf(run, isWrong, state));
    frame.compare(asked);
    showCosts();
  }

  /** What the cursor stands on; also read aloud. */
  function told(hits) {
    const { run, head, off, isWrong } = shown;
    const place = out.cursor[0] * E + out.cursor[1];
    const [own, token] = whence(run, L, place, isWrong);
    const key = isWrong ? "wrong_out" : "out";
    const was = decimal(run[key][place], 4);
    const now = off === null ? "" : `, ${decimal(run.off[off][key][place], 4)} with head ${off} off`;
    const tokens = new Set([...hits].map((n) => Math.floor(n / E)));
    return `Head ${head}, turn ${head} of the loop: rows ${span(run.rows_q[head])} of W_q, ` +
      `rows ${span(run.rows_kv[head])} of W_k and W_v. Token ${out.cursor[0]}, column ` +
      `${out.cursor[1]}: ${was}${now}, made by head ${own} for token ${token}.` +
      (off === null ? "" : ` ${hits.size} of ${L * E} numbers change, in ` +
        `${tokens.size} tokens.`);
  }

  /** The costs of what has been looked at. */
  function showCosts() {
    const looked = runs.filter((run) => shown.seen.has(run))
      .sort((a, b) => a.H - b.H || b.G - a.G);
    showTables(costs, [h("table", { style: "width:286px" },
      h("caption", {}, "what they cost"),
      h("thead", {}, h("tr", {}, ...COSTS.map(([name]) =>
        h("th", { scope: "col", class: "attn-num" }, name)))),
      h("tbody", {}, ...looked.map((run) => h("tr", {}, ...COSTS.map(([, key]) =>
        h("td", { class: `attn-num${run === shown.run ? " attn-new" : ""}` },
          String(run[key]))))))) ]);
  }

  show(runs[0]);
  frame.open();
  return () => el.replaceChildren();
}
