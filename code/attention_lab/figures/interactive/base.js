/**
 * What all interactive figures share. Plain DOM, no dependency, no network.
 *
 * A figure is a module of its own that imports from here and from `scene.js`
 * and has `export default figure(stage)`. Python joins the files into one
 * module, so everything here is a declaration that starts with `export`.
 */

/**
 * Make an element: attributes, listeners (`onclick: f`), children.
 * An attribute that is null, undefined or false is left out.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string|null|false)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((c) => c != null && c !== false));
  return element;
}

/** The chip of an axis: its letter in its colour. */
export function chip(letter) {
  return h("span", { class: `attn-chip attn-${letter.toLowerCase()}` }, letter);
}

/** 0, 1, … up to n − 1. */
export function range(n) {
  return Array.from({ length: n }, (_, i) => i);
}

/** Name places that follow each other: "2–3", or "2" alone. */
export function extent(places) {
  const [first, last] = [Math.min(...places), Math.max(...places)];
  return first === last ? `${first}` : `${first}–${last}`;
}

/** Set an attribute where it changes, so that nothing else is laid out. */
export function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * Bring tables up to date: a table of the same caption and shape is rewritten
 * in place, any other is replaced.
 * @param {HTMLElement} parent
 * @param {HTMLTableElement[]} fresh
 */
export function showTables(parent, fresh) {
  const shape = (t) => t.caption?.textContent +
    [...t.rows].map((row) => row.cells.length);
  const cells = (t) => t.querySelectorAll("td,th");
  const old = [...parent.children];
  old.slice(fresh.length).forEach((t) => t.remove());
  fresh.forEach((table, place) => {
    const shown = old[place];
    if (!shown) return parent.append(table);
    if (shape(shown) !== shape(table)) return shown.replaceWith(table);
    const wanted = cells(table);
    cells(shown).forEach((cell, n) => {
      const { textContent, className } = wanted[n];
      if (cell.textContent !== textContent) cell.textContent = textContent;
      if (cell.className !== className) cell.className = className;
      set(cell, "style", wanted[n].getAttribute("style") ?? "");
    });
  });
}

/**
 * A table of plain numbers.
 * @param {string} caption
 * @param {string[]} heads of the columns
 * @param {{numbers: any[], isNew?: boolean}[]} rows bold where new
 */
export function numberTable(caption, heads, rows) {
  const row = (tag, texts, kind) => h("tr", {},
    ...texts.map((text) => h(tag, { class: `attn-num ${kind}` }, `${text}`)));
  return h("table", { style: `width:${56 * heads.length}px` },
    h("caption", {}, caption), h("thead", {}, row("th", heads, "")),
    h("tbody", {}, ...rows.map(({ numbers, isNew }) =>
      row("td", numbers, isNew ? "attn-new" : ""))));
}

/** An input that cannot be shown; its message is a sentence for the reader. */
export class Refusal extends Error {}

/** Refuse data of another schema. */
export function checkSchema(state, schema) {
  if (state?.schema !== schema) {
    throw new Refusal(`it needs data of schema ${schema}, not ${state?.schema}.`);
  }
}

/** The runs of a recording, if it has this schema and any run. */
export function readRuns(state, schema) {
  checkSchema(state, schema);
  if (!state.runs?.length) throw new Refusal("the recording holds no run.");
  return state.runs;
}

/** Refuse an axis too long to be drawn. */
export function checkSize(axis, size, most) {
  if (!(size >= 1 && size <= most)) {
    throw new Refusal(`axis ${axis} has size ${size}; at most ${most} can be drawn.`);
  }
}

/** Refuse a list of another length, or one that holds what is no number. */
export function checkList(name, list, size) {
  if (list?.length !== size) {
    throw new Refusal(`${name} has ${list?.length ?? "no"} numbers, not ${size}.`);
  }
  if (!list.every(Number.isFinite)) {
    throw new Refusal(`${name} holds what is not a number.`);
  }
}

/** Refuse a list that has not as many finite numbers as it needs. */
export function needs(what, numbers, wanted) {
  const found = numbers.filter(Number.isFinite).length;
  if (found !== wanted) throw new Refusal(`${what} has ${found} numbers, not ${wanted}.`);
}

/** Show a sentence where the figure would be. */
export function refuse(el, sentence) {
  el.replaceChildren(
    h("p", { role: "alert", class: "attn-refused" },
      `This figure cannot be shown: ${sentence}`),
  );
}

/**
 * Keep the reader's answers in this browser, where it allows that.
 * @param {string} figure name of the figure, so that two do not mix
 */
export function memory(figure) {
  const name = (key) => `attention-lab:${figure}:${key}`;
  const kept = new Map(); // where there is no storage, until the page closes
  return {
    get(key) {
      try {
        const found = localStorage.getItem(name(key));
        if (found !== null) return found;
      } catch { /* blocked, as in a sandboxed frame */ }
      return kept.get(key) ?? null;
    },
    set(key, value) {
      kept.set(key, String(value));
      try {
        localStorage.setItem(name(key), String(value));
      } catch { /* full or blocked: `kept` has it */ }
    },
  };
}

/**
 * Act on keys while the figure has focus, and keep them to the figure:
 * a notebook's own shortcuts must not see them.
 * @param {HTMLElement} el
 * @param {Record<string, (event: KeyboardEvent) => void>} actions by key
 */
export function listenToKeys(el, actions) {
  el.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const tag = event.target.tagName;
    const isNative =
      (tag === "SELECT" || tag === "INPUT") ||
      ((tag === "BUTTON" || tag === "SUMMARY") && key === " ");
    if (key in actions && (!isNative || key === "Escape")) {
      event.preventDefault();
      actions[key](event);
    }
  });
}

/**
 * Make one Tab stop of a toolbar: Left and Right move inside.
 * @param {HTMLElement} bar whose children are buttons
 */
export function rove(bar) {
  const buttons = [...bar.children];
  const choose = (chosen) =>
    buttons.forEach((b) => { b.tabIndex = b === chosen ? 0 : -1; });
  choose(buttons[0]);
  bar.addEventListener("focusin", (event) => choose(event.target));
  bar.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const ends = { Home: 0, End: buttons.length - 1 }[event.key];
    if (steps === undefined && ends === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const from = buttons.indexOf(event.target);
    const to = ends ?? (from + steps + buttons.length) % buttons.length;
    buttons[to].focus();
  });
}

/** A button of at least 44 × 44 px; its key, if it has one, is shown. */
export function button(label, onclick, key = null, attributes = {}) {
  return h("button", {
    type: "button", class: "attn-button", onclick,
    "aria-keyshortcuts": key, ...attributes,
  }, label, key && h("kbd", { "aria-hidden": "true" }, key));
}

/** The list of keys that `?` opens. */
export function helpCard(lines, onclose) {
  return h("div", { class: "attn-card", role: "group", "aria-label": "Keys" },
    h("p", {}, "These keys act while the figure has focus."),
    h("dl", {}, ...lines.flatMap(([key, what]) =>
      [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    button("Close", onclose, "Esc"));
}

/**
 * Offer a prediction. Nothing waits for it: "Show me" is there at once.
 * @param {{text: string, options: string[], table?: Node}} question
 * @param {(chosen: number) => void} onanswer
 * @param {() => void} onshow
 */
export function predictionCard(question, onanswer, onshow) {
  return h("div", { class: "attn-card", role: "group", "aria-label": "Prediction" },
    h("p", {}, h("strong", {}, "Predict first. "), question.text),
    question.table,
    h("div", { class: "attn-row", role: "group", "aria-label": "Your guess" },
      ...question.options.map((option, place) =>
        button(option, () => onanswer(place)))),
    h("div", { class: "attn-row" }, button("Show me", onshow, "S")));
}

/**
 * The verdict strip: what was checked, and what came out.
 * @param {{label: string, passed: boolean, value: string, held: string}[]} all
 */
export function verdictStrip(all) {
  return all.map((v) =>
    h("p", { class: "attn-verdict" },
      h("span", {
        class: v.passed ? "attn-chip attn-ok" : "attn-chip attn-bad",
        role: "img", "aria-label": v.passed ? "holds" : "fails",
      }, v.passed ? "✓" : "✗"),
      ` ${v.label}: `, h("strong", {}, v.value), ` (${v.held})`));
}

/** The verdict that an error is within its bound; a null error is infinite. */
export function within(label, error, bound, source) {
  return {
    label,
    passed: error !== null && error <= bound,
    value: `off by ${errorText(error)}`,
    held: `≤ ${errorText(bound)}; ${source}`,
  };
}

/** A number with a fixed count of decimals; null stands for −∞. */
export function decimal(x, places = 2) {
  if (x === null) return "−∞";
  const text = x.toFixed(places);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** A whole number, in groups of three digits. */
export function count(n) {
  return n.toLocaleString("en");
}

/** A number in at most four characters, for a cell: .5, −1.3, −120. */
export function short(x) {
  if (x === null || x === 0) return x === null ? "−∞" : "0";
  const text = decimal(x, Math.abs(x) < 9.95 ? 1 : 0);
  return text.replace(/^(−?)0\./, "$1.");
}

/** An error with two digits; null is infinite. */
export function errorText(x) {
  if (x === null) return "∞";
  if (x === 0) return "0";
  const [digits, power] = x.toExponential(1).split("e").map(Number);
  return power >= -4
    ? String(Number(x.toPrecision(2))).replace("-", "−")
    : `${digits}e−${String(-power).padStart(2, "0")}`;
}

/** The ramps of `attention_lab.figures.palette`: blue, paper, amber; weights; ink. */
export const RAMPS = [
  [[0.965, 0, 262], [0.79, 0.075, 262], [0.46, 0.11, 262]],
  [[0.965, 0, 75], [0.83, 0.12, 75], [0.56, 0.12, 62]],
  [[0.975, 0.025, 90], [0.8, 0.145, 75], [0.36, 0.085, 55]],
  [[0.965, 0.006, 90], [0.66, 0.006, 90], [0.25, 0.006, 90]],
];

/** Fill and ink at a place in [0, 1] of a ramp. */
export function rampColors(ramp, place) {
  const at = Math.min(place, 1) * 2;
  const left = Math.min(Math.floor(at), 1);
  const [l, c, hue] = RAMPS[ramp][left].map(
    (a, i) => a + (at - left) * (RAMPS[ramp][left + 1][i] - a));
  // White reads better than black on what is darker than this.
  const ink = l < 0.568 ? "#fff" : "#000";
  return [`oklch(${l.toFixed(3)} ${c.toFixed(3)} ${hue})`, ink];
}

/**
 * Fill and ink as a style.
 * @param {number} value in [-1, 1]; in [0, 1] on another ramp than the first two
 */
export function valueStyle(value, ramp = value < 0 ? 0 : 1) {
  const [fill, ink] = rampColors(ramp, Math.abs(value));
  return `background:${fill};color:${ink}`;
}

/**
 * Bring every figure of one module on this page to life, once.
 * @param {{render: Function}} figure
 * @param {string} hash which module
 */
export function mount(figure, hash) {
  const all = document.querySelectorAll(`figure[data-attn="${hash}"]`);
  for (const element of all) {
    if (element.dataset.attnReady) continue;
    element.dataset.attnReady = "1";
    const el = element.querySelector(".attn-stage");
    try {
      const text = element.querySelector(".attn-state").textContent;
      const state = JSON.parse(text);
      const model = { get: (key) => ({ state })[key], on() {}, off() {} };
      if (figure.render({ model, el }) !== false) {
        element.classList.add("attn-on");
      }
    } catch (error) {
      // The static picture stays where it is; this says why it does not move.
      refuse(el, `its data cannot be read (${error.message}).`);
    }
  }
}
