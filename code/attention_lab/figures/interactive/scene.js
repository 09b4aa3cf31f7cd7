/**
 * The frame of every figure: choices above, the figure's own parts, a toolbar,
 * cards (prediction, keys), the sentence that is read aloud, the verdicts.
 */
import {
  Refusal, button, h, helpCard, listenToKeys, memory, predictionCard,
  refuse, rove, set, verdictStrip,
} from "./base.js";
import { STYLE } from "./style.js";

/**
 * Make a figure of `stage(state, el)`, which builds into `el`. A Refusal
 * becomes a sentence; new state builds anew.
 */
export function figure(stage) {
  return {
    render({ model, el }) {
      const draw = () => {
        try {
          stage(model.get("state"), el);
          return true;
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          refuse(el, error.message);
          return false;
        }
      };
      const isDrawn = draw();
      model.on("change:state", draw);
      return isDrawn && (() => { el.replaceChildren(); model.off("change:state", draw); });
    },
  };
}

/** A labelled choice; `onchoose` gets the place of the option; `fill` renews. */
export function choice(label, options, onchoose) {
  const select = h("select", { onchange: () => onchoose(Number(select.value)) });
  const fill = (texts) => select.replaceChildren(
    ...texts.map((text, place) => h("option", { value: place }, text)));
  fill(options);
  return { el: h("label", {}, label, select), select, fill };
}

/**
 * A grid of squares with one cursor and one Tab stop.
 * @param {string} label its name, for a reader who does not see it
 * @param {(place: [number, number], isFocused: boolean) => void} onland
 * @param {number} size of a square in px
 */
export function grid(label, onland, size = 44) {
  const el = h("div", { class: "attn-board", role: "grid", "aria-label": label });
  const squares = new Map();
  let [rows, columns] = [0, 0];
  let cursor = [0, 0];
  const own = {
    el,
    get cursor() { return cursor; },
    get hasFocus() { return el.contains(document.activeElement); },
    /** Lay it out, where its size changed; heads may be empty texts. */
    build(rowHeads, columnHeads, name = label) {
      [rows, columns] = [rowHeads.length, columnHeads.length];
      const shape = JSON.stringify([rowHeads, columnHeads]);
      set(el, "aria-label", name);
      if (el.dataset.shape === shape) return;
      el.dataset.shape = shape;
      cursor = [Math.min(cursor[0], rows - 1), Math.min(cursor[1], columns - 1)];
      squares.clear();
      const side = rowHeads.some((text) => text !== "");
      el.style.gridTemplateColumns =
        `${side ? "minmax(30px,max-content) " : ""}repeat(${columns},${size}px)`;
      el.style.setProperty("--size", `${size}px`);
      const head = (text, kind, role) =>
        h("span", { class: `attn-head ${kind}`, role }, text);
      el.replaceChildren(
        ...(columnHeads.some((text) => text !== "") ? [h("div", { role: "row" },
          side && head("", "", "gridcell"),
          ...columnHeads.map((text) => head(text, "", "columnheader")))] : []),
        ...rowHeads.map((text, i) => h("div", { role: "row" },
          side && head(text, "attn-side", "rowheader"),
          ...columnHeads.map((_, j) => {
            const square = h("span", {
              role: "gridcell", tabindex: "-1", "data-cell": `${i},${j}`,
              onclick: () => own.land(i, j, true),
            });
            squares.set(`${i},${j}`, square);
            return square;
          }))));
    },
    /** Rewrite the squares that changed: `look(i, j)` gives text, kind, label. */
    update(look, isFocused = false) {
      for (const [place, square] of squares) {
        const [i, j] = place.split(",").map(Number);
        const { text = "", kind = "", label: name, style } = look(i, j);
        const isHere = i === cursor[0] && j === cursor[1];
        if (square.textContent !== text) square.textContent = text;
        set(square, "class", kind);
        set(square, "style", style ?? "");
        set(square, "tabindex", isHere ? "0" : "-1");
        set(square, "aria-selected", isHere ? "true" : "false");
        set(square, "aria-label", name);
        if (isHere && isFocused) square.focus({ preventScroll: true });
      }
    },
    /** Put the cursor somewhere, without telling. */
    place(i, j) { cursor = [i, j]; },
    land(i, j, isFocused) {
      const inside = (x, size_) => Math.min(Math.max(x, 0), size_ - 1);
      cursor = [inside(i, rows), inside(j, columns)];
      onland(cursor, isFocused);
    },
    focus() { el.querySelector("[tabindex='0']")?.focus({ preventScroll: true }); },
    keys: {
      ArrowRight: () => own.land(cursor[0], cursor[1] + 1, true),
      ArrowLeft: () => own.land(cursor[0], cursor[1] - 1, true),
      ArrowDown: () => own.land(cursor[0] + 1, cursor[1], true),
      ArrowUp: () => own.land(cursor[0] - 1, cursor[1], true),
    },
  };
  return own;
}

/** The grid that has the focus, or the last one. */
export function focused(...grids) {
  return grids.find((one) => one.hasFocus) ?? grids.at(-1);
}

/** The arrow keys, for whichever grid has the focus. */
export function arrows(...grids) {
  return Object.fromEntries(Object.keys(grids[0].keys).map((key) =>
    [key, () => focused(...grids).keys[key]()]));
}

/**
 * The tools, keys and help of a figure that is walked step by step.
 * @param {(by: number) => void} step which stays inside by itself
 * @param {string} what is walked, as in "tile"
 */
export function walk(step, what) {
  const [forth, back] = [() => step(1), () => step(-1)];
  return {
    tools: [["Step", forth, "Space"], ["Back", back, "PgUp"]],
    keys: {
      " ": forth, PageDown: forth, PageUp: back,
      Home: () => step(-1e9), End: () => step(1e9),
    },
    help: [
      ["Space", `the next ${what} (also PgDn)`], ["PgUp", `the ${what} before`],
      ["Home, End", `the first and the last ${what}`],
    ],
  };
}

/**
 * Build the frame.
 * @param {HTMLElement} el
 * @param {object} parts
 * @param {string} parts.name under which answers are kept
 * @param {string} [parts.style] the figure's own rules
 * @param {Node[]} [parts.controls] choices above
 * @param {Node[]} parts.body between the choices and the toolbar
 * @param {Node[]} [parts.results] below the sentence
 * @param {[string, Function, string, object?][]} [parts.tools] label, action,
 *   key as it is shown; before Predict, Show me and Keys
 * @param {Record<string, Function>} [parts.keys] further keys
 * @param {[string, string][]} parts.help what each key does
 * @param {() => void} parts.home gives the focus back after a card
 * @param {() => {id: string, text: string, options: string[], answer: number,
 *   table?: Node}|null} parts.question about what `next` will show
 * @param {() => void} parts.next show it
 */
export function scene(el, parts) {
  const answers = memory(parts.name);
  const card = h("div", {});
  const told = h("p", { class: "attn-told", role: "status", "aria-live": "polite" });
  const note = h("p", {});
  const guess = h("p", { hidden: true });
  const strip = h("div", {});
  const tools = [
    ...(parts.tools ?? []),
    ["Predict", ask, "P"], ["Show me", showMe, "S"], ["Keys", help, "?"],
  ];
  const buttons = tools.map(([label, act, key, more]) => button(label, act, key, more));
  const bar = h("div", {
    class: "attn-row", role: "toolbar", "aria-label": "Walk",
  }, ...buttons);
  rove(bar);
  el.replaceChildren(...[
    h("style", {}, STYLE + (parts.style ?? "")),
    parts.controls && h("div", { class: "attn-row" }, ...parts.controls),
    ...parts.body, bar, card, note, told, guess, ...(parts.results ?? []), strip,
  ].filter(Boolean));
  el.classList.add("attn-stage");
  listenToKeys(el, {
    ...parts.keys, p: ask, s: showMe, "?": help, Escape: leave,
  });

  /** The card's first button gets the focus, unless the page has just opened. */
  function open(content, isFocused) {
    card.replaceChildren(content);
    if (isFocused) card.querySelector("button").focus({ preventScroll: true });
  }

  function offer(question, isFocused) {
    open(predictionCard(question, (chosen) => {
      answers.set(question.id, chosen);
      showMe();
    }, showMe), isFocused);
  }

  function ask() {
    const question = parts.question();
    if (question) offer(question, true);
    else say("Nothing is left to predict here.");
  }

  /** Close whatever asks, and show what comes next. */
  function showMe() {
    card.replaceChildren();
    parts.next();
  }

  function help() {
    open(helpCard([
      ...parts.help,
      ["P", "predict what comes next"],
      ["S", "show it without predicting"],
      ["?", "this list"],
      ["Esc", "close a card, then leave the figure"],
    ], leave), true);
  }

  function leave() {
    if (card.firstChild) {
      card.replaceChildren();
      parts.home();
    } else if (document.activeElement !== document.body) {
      document.activeElement.blur();
    }
  }

  function say(words) {
    if (told.textContent !== words) told.textContent = words;
  }

  return {
    /** Show whether one of `parts.tools` is on. */
    press(place, isOn) { set(buttons[place], "aria-pressed", `${isOn}`); },
    say,
    /** Words that stay, above the sentence: text or nodes. */
    note(...content) { note.replaceChildren(...content); },
    verdicts(all) { strip.replaceChildren(...verdictStrip(all)); },
    /** Show the reader's answer beside the run's, if there is one. */
    compare(question) {
      const given = question && answers.get(question.id);
      guess.hidden = given == null;
      if (guess.hidden) return;
      guess.textContent = `You predicted ${question.options[given] ?? "?"}; ` +
        `the run says ${question.options[question.answer]}` +
        (Number(given) === question.answer ? ": right." : ".");
    },
    /** Close what asks, which is about another state; a focus in it goes home. */
    closeCard() {
      const hadFocus = card.contains(document.activeElement);
      card.replaceChildren();
      if (hadFocus) parts.home();
    },
    /** Offer a question when the figure opens; the focus stays where it is. */
    open() {
      const question = parts.question();
      if (question) offer(question, false);
    },
  };
}
