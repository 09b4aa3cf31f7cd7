/**
 * The stage of a theatre: one recorded run of a loop over tiles, tile by tile.
 * Nothing is computed here but differences and counts of recorded numbers.
 */
import { chip, h, range, showTables } from "./base.js";
import { choice, figure, grid, scene, walk } from "./scene.js";
import { happened, readTheatre, verdictsOf } from "./theatre_data.js";

export const FIGURE_STYLE = `
.attn-top{gap:14px 32px}
.attn-traffic{width:288px;max-width:100%}
.attn-bar{display:block;height:20px;border:1px solid #6b7280;position:relative;
margin:2px 0 12px;max-width:100%}
.attn-bar i{position:absolute;inset:0 auto 0 0;background:var(--kept)}
.attn-bar i.attn-square{background:repeating-linear-gradient(135deg,#6b7280 0 1px,
transparent 1px 5px);left:auto;right:0;border-left:1px solid #6b7280}
`;

/**
 * Make the figure of a play.
 * @param {object} play
 * @param {string} play.name under which answers are kept
 * @param {string} play.schema of its data
 * @param {Record<string, string>} play.parts recorded after each tile, with
 *   the axes of each: L queries, S keys, D channels
 * @param {Record<string, string>} play.results recorded once
 * @param {Record<string, string>} play.errors what is held against the reference
 * @param {string} play.rival whose traffic stands beside
 * @param {string} play.square what of it grows with L × S
 * @param {(run, at) => HTMLTableElement[]} play.tables of the tile at a step
 * @param {(run, at) => string} play.story what happened there
 * @param {(run, at) => object} play.question about a tile, before it is shown
 * @param {(run, at) => Node} [play.arriving] what is known by then
 */
export function theatre(play) {
  return figure((state, el) => {
    const runs = readTheatre(state, play);
    const rights = runs.filter((one) => !one.slip);
    const wrongs = runs.filter((one) => one.slip);
    let [run, at, lastSlip] = [runs[0], 0];
    const board = grid("Tiles of the score matrix", land);
    const says = range(3).map(() => h("span", {}));
    const [meter, square] = ["", "attn-square"].map((kind) => h("i", { class: kind }));
    const bar = (...parts) => h("span", { class: "attn-bar" }, ...parts);
    const traffic = h("div", { class: "attn-traffic" },
      h("p", { class: "attn-title4" }, "numbers moved to and from memory"), says[0],
      bar(meter), says[1], bar(h("i", { style: "width:100%" }), square), says[2]);
    const tables = h("div", { class: "attn-parts" });
    const pickRun = choice("recorded run", rights.map((one) => one.name),
      (place) => show(rights[place]));
    const pickSlip = choice("mistake",
      ["none: the right loop", ...wrongs.map((one) => one.slipName)],
      (place) => show(place ? wrongs[place - 1] : run.right));
    const steps = walk((by) => go(inside(at + by)), "tile");
    const frame = scene(el, {
      name: play.name,
      style: FIGURE_STYLE,
      controls: [pickRun.el, pickSlip.el],
      body: [h("div", { class: "attn-parts attn-top" },
        h("div", {}, h("p", { class: "attn-title4" }, chip("L"), " query tiles × ",
          chip("S"), " key tiles"), board.el),
        traffic)],
      results: [tables],
      tools: [
        ...steps.tools,
        ["Mistake", toggleSlip, "B"],
      ],
      keys: { ...board.keys, ...steps.keys, b: toggleSlip },
      help: [
        ["← → ↑ ↓", "move the cursor over the tiles"],
        ...steps.help,
        ["B", "a mistake on or off"],
      ],
      home: board.focus,
      question: () => questionAt(at + 1),
      next: () => go(inside(at + 1), true),
    });

    function inside(step) {
      return Math.min(Math.max(step, 0), run.tiles.length - 1);
    }

    /** Show another run, at the same tile where it has one. */
    function show(other) {
      const { hasFocus } = board;
      run = other;
      if (run.slip) lastSlip = run;
      pickRun.select.value = rights.indexOf(run.right);
      pickSlip.select.value = wrongs.indexOf(run) + 1;
      frame.press(2, run !== run.right);
      const [rows, columns] = ["L", "S"].map((axis) =>
        range(Math.ceil(run[axis] / run[`TILE_${axis}`])).map(String));
      board.build(rows, columns,
        `Tiles of the score matrix, ${rows.length} by ${columns.length}`);
      frame.note(...(run.slip
        ? [h("strong", {}, `Mistake: ${run.slipName}. `), run.says,
          " Dashed frames mark numbers that differ from the right loop."] : []));
      frame.verdicts(verdictsOf(play, run, `${state.dtype} loop, seed ${state.seed}`));
      frame.closeCard();
      go(run.visits[board.cursor] ?? 0, hasFocus);
    }

    function toggleSlip() {
      const here = wrongs.filter((wrong) => wrong.name === run.name);
      show(run.slip ? run.right
        : here.includes(lastSlip) ? lastSlip : here[0] ?? lastSlip ?? wrongs[0] ?? run);
    }

    function land(tile, isFocused) {
      const visit = run.visits[tile];
      if (visit !== undefined) go(visit, isFocused);
      else update(isFocused, "skipped, because none of its queries may see one of its keys.");
    }

    /** Go to a step; a focus in the board goes along, none is taken away. */
    function go(to, isFocused = board.hasFocus) {
      if (to !== at) frame.closeCard(); // its question has passed
      at = to;
      board.place(...run.tiles[at]);
      update(isFocused);
    }

    /** Bring everything that depends on the cursor up to date. */
    function update(isFocused, skipped = "") {
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
      frame.say(skipped ? `Tile (${board.cursor.join(", ")}): ${skipped}` : happened(play, run, at));
      tables.hidden = skipped !== "";
      if (!skipped) showTables(tables, play.tables(run, at));
      drawTraffic(run.right.traffic);
      frame.compare(at ? questionAt(at) : null);
    }

    /** What may be asked about a tile, under a name of its own. */
    function questionAt(step) {
      return run.tiles[step] ? {
        ...play.question(run, step),
        table: play.arriving?.(run, step),
        id: `${state.seed}/${run.name}/${run.slip}/${step - 1}`,
      } : null;
    }

    function drawTraffic(moved) {
      [...traffic.children].slice(2).forEach((part) => { part.hidden = !moved; });
      const say = (...all) => all.forEach((words, n) => { says[n].textContent = words; });
      if (!moved) return say("They were not counted for this run.");
      const stored = at + 1 === run.tiles.length ? moved.total : moved.so_far[at];
      meter.style.width = `${100 * stored / moved.naive}%`;
      square.style.width = `${100 * moved.square / moved.naive}%`;
      say(`${run.slip ? "right loop" : "flash"}, so far: ${stored} of ${moved.total}` +
        (moved.before ? `, of these ${moved.before} for D and dQ` : ""),
      `${play.rival}: ${moved.naive}, of these ${moved.square} for ${play.square} (hatched)`,
      `Of ${run.L * run.S} scores, ${run.scores[at].length} exist now; none is ever stored.`);
    }

    show(run);
    frame.open();
  });
}
