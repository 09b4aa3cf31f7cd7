/**
 * F7, the flash theatre: one recorded run of the flash loop, tile by tile.
 *
 * Data: `flash_theatre.v1`, as `attention_lab.steps.flash_theatre` writes it.
 * Nothing is computed here but differences and counts of recorded numbers.
 */
import {
  Refusal, STYLE, button, h, helpCard, listenToKeys, memory,
  predictionCard, refuse, rove, set, showTables, verdictStrip,
} from "./base.js";
import {
  happened, questionAfter, range, readTheatre, sizes, verdictsOf,
} from "./theatre_data.js";
import { arriving, chip, tablesOf } from "./theatre_tables.js";

export const FIGURE_STYLE = `
.attn-board{display:grid;gap:2px;width:max-content;font-size:13px;
font-variant-numeric:tabular-nums}
.attn-board>div{display:contents}
.attn-board span{min-width:44px;height:44px;display:grid;place-items:center;
cursor:default}
.attn-board .attn-head{min-width:26px;height:22px;font-size:12px;border:0!important}
.attn-board .attn-side{height:44px;min-width:30px}
.attn-board [role=gridcell]{border:1px dashed var(--line);cursor:pointer}
.attn-board .attn-seen{background:var(--kept);color:#000;border:1px solid #6b7280}
.attn-board .attn-skipped{background:var(--hatch)}
.attn-board [aria-selected=true]{border:3px solid currentColor;font-weight:700}
.attn-board .attn-seen[aria-selected=true]{border-color:#000;
box-shadow:0 0 0 2px var(--kept)}
.attn-title4{font-weight:600;font-size:14px;line-height:20px;
margin:0 0 6px!important}
.attn-top{gap:14px 32px}
.attn-traffic{width:288px;max-width:100%}
.attn-bar{display:block;height:20px;border:1px solid #6b7280;position:relative;
margin:2px 0 12px;max-width:100%}
.attn-bar i{position:absolute;inset:0 auto 0 0;background:var(--kept)}
.attn-bar i.attn-square{background:repeating-linear-gradient(135deg,#6b7280 0 1px,
transparent 1px 5px);left:auto;right:0;border-left:1px solid #6b7280}
.attn-told{min-height:4.4em;border-left:3px solid var(--line);padding-left:12px}
`;

/** Draw one run, and let the reader walk through it. */
export default {
  render({ model, el }) {
    let close = () => {};
    const draw = () => {
      try {
        close = stage(model.get("state"), el);
        return true;
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        refuse(el, error.message);
        return false;
      }
    };
    const isDrawn = draw();
    const redraw = () => { close(); draw(); };
    model.on("change:state", redraw);
    return isDrawn && (() => { close(); model.off("change:state", redraw); });
  },
};

/** Build the stage in `el`; returns what removes it. */
export function stage(state, el) {
  const runs = readTheatre(state);
  const answers = memory("flash_theatre");
  const shown = { run: runs[0], at: 0, cell: "0,0", lastSlip: null };

  const board = h("div", { class: "attn-board", role: "grid" });
  const traffic = h("div", { class: "attn-traffic" });
  const card = h("div", {});
  const told = h("p", { class: "attn-told", role: "status", "aria-live": "polite" });
  const guess = h("p", {});
  const tables = h("div", { class: "attn-parts" });
  const strip = h("div", {});
  const says = h("p", {});
  const rights = runs.filter((run) => !run.slip);
  const wrongs = runs.filter((run) => run.slip);
  const pickRun = h("select", { onchange: (e) => show(rights[e.target.value]) },
    ...rights.map((run, n) => h("option", { value: n }, run.name)));
  const pickSlip = h("select", {
    onchange: (e) => show(e.target.value ? wrongs[e.target.value - 1] : shown.run.right),
  },
  h("option", { value: "" }, "none: the right loop"),
  ...wrongs.map((run, n) => h("option", { value: n + 1 }, run.slipName)));
  const bug = button("Mistake", () => toggleSlip(), "B", { "aria-pressed": "false" });
  const bar = h("div", { class: "attn-row", role: "toolbar", "aria-label": "Walk" },
    button("Step", () => move(1), "Space"),
    button("Back", () => move(-1), "PgUp"),
    button("Predict", () => ask(), "P"),
    button("Show me", () => showMe(), "S"),
    bug,
    button("Keys", () => help(), "?"));
  rove(bar);

  el.replaceChildren(
    h("style", {}, STYLE + FIGURE_STYLE),
    h("div", { class: "attn-row" },
      h("label", {}, "recorded run", pickRun),
      h("label", {}, "mistake", pickSlip)),
    h("div", { class: "attn-parts attn-top" },
      h("div", {},
        h("p", { class: "attn-title4" }, chip("L"), " query tiles × ",
          chip("S"), " key tiles"), board),
      traffic),
    bar, card, says, told, guess, tables, strip);
  el.classList.add("attn-stage");

  listenToKeys(el, {
    ArrowRight: () => walk(0, 1), ArrowLeft: () => walk(0, -1),
    ArrowDown: () => walk(1, 0), ArrowUp: () => walk(-1, 0),
    PageDown: () => move(1), PageUp: () => move(-1), " ": () => move(1),
    Home: () => go(0), End: () => go(shown.run.tiles.length - 1),
    b: toggleSlip, p: ask, s: showMe, "?": help, Escape: leave,
  });

  /** Show another run, at the same tile where it has one. */
  function show(run) {
    const isInBoard = board.contains(document.activeElement);
    shown.run = run;
    if (run.slip) shown.lastSlip = run;
    pickRun.value = rights.indexOf(run.right);
    pickSlip.value = run.slip ? wrongs.indexOf(run) + 1 : "";
    bug.setAttribute("aria-pressed", run.slip ? "true" : "false");
    buildBoard();
    says.replaceChildren(...(run.slip
      ? [h("strong", {}, `Mistake: ${run.slipName}. `), run.says,
        " Dashed frames mark numbers that differ from the right loop."] : []));
    strip.replaceChildren(...verdictStrip(
      verdictsOf(run, state.seed, state.dtype)));
    card.replaceChildren();
    go(run.visits[shown.cell] ?? 0, isInBoard);
  }

  function toggleSlip() {
    const { run } = shown;
    const here = wrongs.filter((wrong) => wrong.name === run.name);
    const last = shown.lastSlip;
    if (run.slip) show(run.right);
    else show(here.includes(last) ? last : here[0] ?? last ?? wrongs[0] ?? run);
  }

  /** One row and one column per tile; the ones never visited are hatched. */
  function buildBoard() {
    const { run } = shown;
    const [rows, columns] = sizes(run);
    if (board.dataset.size === `${rows},${columns}`) return;
    board.dataset.size = `${rows},${columns}`;
    board.style.gridTemplateColumns = `30px repeat(${columns}, 44px)`;
    board.setAttribute("aria-label",
      `Tiles of the score matrix, ${rows} by ${columns}`);
    const head = (text, kind, role) =>
      h("span", { class: `attn-head ${kind}`, role }, text);
    board.replaceChildren(
      h("div", { role: "row" }, head("", "", "gridcell"),
        ...range(columns).map((j) => head(String(j), "", "columnheader"))),
      ...range(rows).map((i) => h("div", { role: "row" },
        head(String(i), "attn-side", "rowheader"),
        ...range(columns).map((j) => h("span", {
          role: "gridcell", tabindex: "-1", "data-cell": `${i},${j}`,
          onclick: () => land(i, j, true),
        })))));
  }

  /** Move the cursor by rows and columns of tiles. */
  function walk(down, right) {
    const [rows, columns] = sizes(shown.run);
    const [i, j] = shown.cell.split(",").map(Number);
    land(Math.min(Math.max(i + down, 0), rows - 1),
      Math.min(Math.max(j + right, 0), columns - 1), true);
  }

  function land(i, j, isFocused) {
    shown.cell = `${i},${j}`;
    const at = shown.run.visits[shown.cell];
    if (at !== undefined) go(at, isFocused);
    else update(isFocused, "skipped, because none of its queries may see one of its keys.");
  }

  function move(by) {
    go(Math.min(Math.max(shown.at + by, 0), shown.run.tiles.length - 1));
  }

  /** Go to a step; a focus in the board goes along, none is taken away. */
  function go(at, isFocused = board.contains(document.activeElement)) {
    shown.at = at;
    shown.cell = `${shown.run.tiles[at]}`;
    update(isFocused);
  }

  /** Bring everything that depends on the cursor up to date. */
  function update(isFocused, skipped = null) {
    const { run, at, cell } = shown;
    for (const square of board.querySelectorAll("[data-cell]")) {
      const place = square.dataset.cell;
      const visit = run.visits[place] ?? -1;
      const isSeen = visit >= 0 && visit <= at;
      const number = visit < 0 ? "" : String(visit + 1);
      if (square.textContent !== number) square.textContent = number;
      set(square, "class", visit < 0 ? "attn-skipped" : isSeen ? "attn-seen" : "");
      set(square, "tabindex", place === cell ? "0" : "-1");
      set(square, "aria-selected", place === cell ? "true" : "false");
      set(square, "aria-label", `tile ${place.replace(",", ", ")}: ` +
        (visit < 0 ? "skipped" : `visit ${visit + 1}, ${isSeen ? "done" : "to come"}`));
      if (place === cell && isFocused) square.focus({ preventScroll: true });
    }
    const words = skipped
      ? `Tile (${cell.replace(",", ", ")}): ${skipped}` : happened(run, at);
    if (told.textContent !== words) told.textContent = words;
    tables.hidden = Boolean(skipped);
    if (!skipped) showTables(tables, tablesOf(run, at));
    drawTraffic();
    showGuess();
  }

  function showGuess() {
    const asked = shown.at > 0 && questionAfter(shown.run, shown.at - 1);
    const given = asked && answers.get(questionKey(shown.at - 1));
    guess.hidden = given == null || given === false;
    if (guess.hidden) return;
    guess.textContent = `You predicted ${asked.options[given] ?? "?"}; the run ` +
      `says ${asked.options[asked.answer]}` +
      (Number(given) === asked.answer ? ": right." : ".");
  }

  function questionKey(at) {
    return `${state.seed}/${shown.run.name}/${shown.run.slip}/${at}`;
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

  function ask() {
    const question = questionAfter(shown.run, shown.at);
    if (!question) {
      told.textContent = "This is the last tile: nothing is left to predict.";
      return;
    }
    const at = shown.at;
    card.replaceChildren(predictionCard(
      { ...question, table: arriving(shown.run, at + 1) },
      (chosen) => { answers.set(questionKey(at), chosen); showMe(); }, showMe));
    card.querySelector("button").focus({ preventScroll: true });
  }

  /** Close whatever asks, and show what comes next. */
  function showMe() {
    card.replaceChildren();
    go(Math.min(shown.at + 1, shown.run.tiles.length - 1), true);
  }

  function help() {
    card.replaceChildren(helpCard([
      ["← → ↑ ↓", "move the cursor over the tiles"],
      ["Space", "next tile of the run (also PgDn)"],
      ["PgUp", "the tile before"],
      ["Home, End", "first tile, last tile"],
      ["P", "predict the next tile"],
      ["S", "show it without predicting"],
      ["B", "a mistake on or off"],
      ["?", "this list"],
      ["Esc", "close a card, then leave the figure"],
    ], leave));
    card.querySelector("button").focus({ preventScroll: true });
  }

  function leave() {
    if (card.firstChild) {
      card.replaceChildren();
      board.querySelector("[tabindex='0']").focus({ preventScroll: true });
    } else if (document.activeElement !== document.body) {
      document.activeElement.blur();
    }
  }

  show(runs[0]);
  const opening = questionAfter(runs[0], 0);
  if (opening) { // offered, not asked: the focus stays where it is
    card.replaceChildren(predictionCard(
      { ...opening, table: arriving(runs[0], 1) },
      (chosen) => { answers.set(questionKey(0), chosen); showMe(); }, showMe));
  }
  return () => el.replaceChildren();
}
