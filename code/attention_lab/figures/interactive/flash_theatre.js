/**
 * F7, the flash theatre: one recorded run of the flash loop, tile by tile.
 *
 * Data: `flash_theatre.v1`, as `attention_lab.steps.flash_theatre` writes it.
 * Nothing is computed here but differences and counts of recorded numbers.
 */
import { chip, h, range, showTables } from "./base.js";
import { choice, figure, grid, scene, walk } from "./scene.js";
import {
  happened, questionAfter, readTheatre, sizes, verdictsOf,
} from "./theatre_data.js";
import { arriving, tablesOf } from "./theatre_tables.js";

export const FIGURE_STYLE = `
.attn-top{gap:14px 32px}
.attn-traffic{width:288px;max-width:100%}
.attn-bar{display:block;height:20px;border:1px solid #6b7280;position:relative;
margin:2px 0 12px;max-width:100%}
.attn-bar i{position:absolute;inset:0 auto 0 0;background:var(--kept)}
.attn-bar i.attn-square{background:repeating-linear-gradient(135deg,#6b7280 0 1px,
transparent 1px 5px);left:auto;right:0;border-left:1px solid #6b7280}
`;

export default figure(stage);

/** Build the stage in `el`: one run, and a way to walk through it. */
export function stage(state, el) {
  const runs = readTheatre(state);
  const shown = { run: runs[0], at: 0, lastSlip: null };
  const rights = runs.filter((run) => !run.slip);
  const wrongs = runs.filter((run) => run.slip);
  const board = grid("Tiles of the score matrix", land);
  const traffic = h("div", { class: "attn-traffic" });
  const tables = h("div", { class: "attn-parts" });
  const pickRun = choice("recorded run", rights.map((run) => run.name),
    (place) => show(rights[place]));
  const pickSlip = choice("mistake",
    ["none: the right loop", ...wrongs.map((run) => run.slipName)],
    (place) => show(place ? wrongs[place - 1] : shown.run.right));
  const steps = walk(move, "tile");
  const frame = scene(el, {
    name: "flash_theatre",
    style: FIGURE_STYLE,
    controls: [pickRun.el, pickSlip.el],
    body: [h("div", { class: "attn-parts attn-top" },
      h("div", {}, h("p", { class: "attn-title4" }, chip("L"), " query tiles × ",
        chip("S"), " key tiles"), board.el),
      traffic)],
    results: [tables],
    tools: [
      ...steps.tools,
      ["Mistake", toggleSlip, "B", { "aria-pressed": "false" }],
    ],
    keys: {
      ...board.keys, ...steps.keys, b: toggleSlip,
    },
    help: [
      ["← → ↑ ↓", "move the cursor over the tiles"],
      ...steps.help,
      ["B", "a mistake on or off"],
    ],
    home: board.focus,
    question: () => questionAt(shown.at),
    next: () => go(Math.min(shown.at + 1, shown.run.tiles.length - 1), true),
  });

  /** Show another run, at the same tile where it has one. */
  function show(run) {
    const { hasFocus } = board;
    shown.run = run;
    if (run.slip) shown.lastSlip = run;
    pickRun.select.value = rights.indexOf(run.right);
    pickSlip.select.value = run.slip ? wrongs.indexOf(run) + 1 : 0;
    frame.tools[2].setAttribute("aria-pressed", run.slip ? "true" : "false");
    const [rows, columns] = sizes(run);
    board.build(range(rows).map(String), range(columns).map(String),
      `Tiles of the score matrix, ${rows} by ${columns}`);
    frame.note(...(run.slip
      ? [h("strong", {}, `Mistake: ${run.slipName}. `), run.says,
        " Dashed frames mark numbers that differ from the right loop."] : []));
    frame.verdicts(verdictsOf(run, state.seed, state.dtype));
    frame.closeCard();
    go(run.visits[board.cursor] ?? 0, hasFocus);
  }

  function toggleSlip() {
    const { run } = shown;
    const here = wrongs.filter((wrong) => wrong.name === run.name);
    const last = shown.lastSlip;
    if (run.slip) show(run.right);
    else show(here.includes(last) ? last : here[0] ?? last ?? wrongs[0] ?? run);
  }

  function land(tile, isFocused) {
    const at = shown.run.visits[tile];
    if (at !== undefined) go(at, isFocused);
    else update(isFocused, "skipped, because none of its queries may see one of its keys.");
  }

  function move(by) {
    go(Math.min(Math.max(shown.at + by, 0), shown.run.tiles.length - 1));
  }

  /** Go to a step; a focus in the board goes along, none is taken away. */
  function go(at, isFocused = board.hasFocus) {
    if (at !== shown.at) frame.closeCard(); // its question has passed
    shown.at = at;
    board.place(...shown.run.tiles[at]);
    update(isFocused);
  }

  /** Bring everything that depends on the cursor up to date. */
  function update(isFocused, skipped = null) {
    const { run, at } = shown;
    board.update((i, j) => {
      const visit = run.visits[[i, j]] ?? -1;
      const isSeen = visit >= 0 && visit <= at;
      return {
        text: visit < 0 ? "" : String(visit + 1),
        kind: visit < 0 ? "attn-skipped" : isSeen ? "attn-seen" : "",
        label: `tile ${i}, ${j}: ` +
          (visit < 0 ? "skipped" : `visit ${visit + 1}, ${isSeen ? "done" : "to come"}`),
      };
    }, isFocused);
    frame.say(skipped ? `Tile (${board.cursor.join(", ")}): ${skipped}` : happened(run, at));
    tables.hidden = Boolean(skipped);
    if (!skipped) showTables(tables, tablesOf(run, at));
    drawTraffic();
    frame.compare(at > 0 ? questionAt(at - 1) : null);
  }

  /** What may be asked after a step, under a name of its own. */
  function questionAt(at) {
    const { run } = shown;
    const question = questionAfter(run, at);
    return question && {
      ...question,
      id: `${state.seed}/${run.name}/${run.slip}/${at}`,
      table: arriving(run, at + 1),
    };
  }

  function drawTraffic() {
    const { run, at } = shown;
    const moved = run.right.traffic;
    if (!moved || !traffic.firstChild) {
      traffic.replaceChildren(
        h("p", { class: "attn-title4" }, "numbers moved to and from memory"),
        ...(moved ? [
          h("span", {}, ""), h("span", { class: "attn-bar" }, h("i", {})),
          h("span", {}, ""),
          h("span", { class: "attn-bar" }, h("i", { style: "width:100%" }),
            h("i", { class: "attn-square" })),
          h("span", {}, "")]
          : [h("p", {}, "They were not counted for this run.")]));
    }
    if (!moved) return;
    const [flash, meter, three, naive, kept] = [...traffic.children].slice(1);
    const stored = at + 1 === run.tiles.length ? moved.total : moved.so_far[at];
    const whose = run.slip ? "right loop" : "flash";
    flash.textContent = `${whose}, so far: ${stored} of ${moved.total}`;
    meter.firstChild.style.width = `${100 * stored / moved.naive}%`;
    three.textContent = `three kernels: ${moved.naive}, of these ` +
      `${moved.square} for scores and weights (hatched)`;
    naive.lastChild.style.width = `${100 * moved.square / moved.naive}%`;
    kept.textContent = `Of ${run.L * run.S} scores, ` +
      `${run.scores[at].length} exist now; none is ever stored.`;
  }

  show(runs[0]);
  frame.open();
  return () => el.replaceChildren();
}
