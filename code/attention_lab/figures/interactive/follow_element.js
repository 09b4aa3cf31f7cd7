/**
 * F3, follow the element: one element of Q through recorded chains of views.
 *
 * Data: `follow_element.v1` as `attention_lab.steps.follow_element` writes it,
 * with the words and verdicts that `attention_lab.figures.follow_stage` adds.
 * Nothing is computed here but where an element stands in a list.
 */
import { Refusal, checkSchema, chip, h, set } from "./base.js";
import { choice, figure, grid, scene, walk } from "./scene.js";

export const FIGURE_STYLE = `
.attn-strip{flex-wrap:wrap;gap:6px 8px;margin:4px 0 14px}
.attn-strip,.attn-strip span{display:flex}
.attn-strip b{width:26px;text-align:center;font-size:10.5px;font-weight:400;line-height:22px}
.attn-strip i{display:block;font-style:normal;border:.5px solid #6b7280}
.attn-strip .attn-here{font-weight:700;outline:3px solid}
.attn-sum{font-weight:600;margin:14px 0 6px!important}
.attn-chain p{padding:0 10px;border-left:3px solid var(--line)}
.attn-chain [aria-current=true]{border-left:9px solid;padding-left:4px}
.attn-board .attn-side{align-self:end}
.attn-board .attn-block{margin-top:9px}
.attn-board .attn-off{outline:1px dashed;outline-offset:-4px;position:relative}
.attn-board .attn-off::after{content:"✗";position:absolute;right:2px;top:-1px;font-size:9px}
.attn-board .attn-want{box-shadow:0 0 0 3px var(--bad)}
`;

/** Check what a model holds; a Refusal is a sentence. */
export function readFollow(state) {
  const needs = (holds, what) => { if (!holds) throw new Refusal(what); };
  checkSchema(state, "follow_element.v1");
  needs(state.chains?.length, "the recording holds no chain.");
  for (const { name, steps, input } of state.chains) {
    const { names } = state.inputs[input];
    needs(names.length <= 96,
      `the chain ${name} has ${names.length} elements; at most 96 can be drawn.`);
    needs(steps.length > 1, `the chain ${name} has no step.`);
    for (const { call, codes, labels, strip } of steps) {
      needs([...codes, ...strip.flat()].every((c) => c in names),
        `${call} in the chain ${name} holds what is no element.`);
      needs(labels.length === codes.length,
        `${call} in the chain ${name} has ${codes.length} elements, not ${labels.length}.`);
    }
  }
  return state.chains;
}

export default figure(stage);

/** Build the stage in `el`: one chain, one element, and a way through. */
export function stage(state, el) {
  const chains = readFollow(state);
  let [chain, at] = [chains[0], 0];
  let code = state.inputs[chain.input].start;
  const strip = h("div", { class: "attn-strip" });
  const sum = h("p", { class: "attn-sum" });
  const list = h("div", { class: "attn-chain" });
  const board = grid("Elements", land, 38);
  const pick = choice("recorded chain", chains.map((c) => c.name), (n) => show(chains[n]));
  const steps = walk((by) => go(at + by), "step");
  // A single letter is the chip of an axis.
  const words = (parts) => parts.map((part) => (part[1] ? part : chip(part)));
  const question = (n = at + 1) => chain.steps[n] && {
    id: `${chain.name}/${n}/${code}`,
    text: `Next: ${chain.steps[n].call}. What does it change for ` +
      `${state.inputs[chain.input].names[code]}?`,
    options: ["nothing", "its coordinates", "its memory", "both"],
    answer: chain.steps[n].changes[code],
  };
  const frame = scene(el, {
    name: "follow_element",
    style: FIGURE_STYLE,
    controls: [pick.el],
    body: [sum, strip, h("div", { class: "attn-parts" },
      board.el, list)],
    tools: [
      ...steps.tools,
      ["Wrong way", toggle, "B"],
      ["◂", follow(-1), null, { "aria-label": "element before" }],
      ["▸", follow(1), null, { "aria-label": "next element" }],
    ],
    keys: { ...board.keys, ...steps.keys, b: toggle },
    help: [
      ["← → ↑ ↓", "follow another element"],
      ...steps.help,
      ["B", "the wrong way, and back"],
    ],
    home: board.focus,
    question,
    next: steps.keys.PageDown,
  });

  /** Show another chain, at its end where the last one was at its end. */
  function show(next) {
    if (at === chain.steps.length - 1) at = 99;
    if (next.input !== chain.input) code = state.inputs[next.input].start;
    chain = next;
    pick.select.value = chains.indexOf(chain);
    frame.press(2, chain.instead != null);
    frame.note(chain.says);
    frame.verdicts(chain.verdicts);
    list.replaceChildren(...chain.steps.map((each) =>
      h("p", {}, h("strong", {}, each.call), ` ${each.kind}`, h("br"), ...words(each.axes))));
    go(at);
  }

  function toggle() {
    if (chain.beside == null) frame.say("No other way stands beside this one.");
    else show(chains[chain.beside]);
  }

  function land([i, j], isFocused) {
    const { codes, columns } = chain.steps[at];
    code = codes[i * columns.length + j];
    update(isFocused);
  }

  /** Follow the next element of the grid, in reading order. */
  function follow(by) {
    return () => {
      const { codes } = chain.steps[at];
      code = codes.at((codes.indexOf(code) + by) % codes.length);
      update();
    };
  }

  function go(to) {
    const { hasFocus } = board;
    at = Math.min(Math.max(to, 0), chain.steps.length - 1);
    const { rows, columns, call } = chain.steps[at];
    board.build(rows, columns, `Elements, ${call}`);
    [...list.children].forEach((p, n) => set(p, "aria-current", String(n === at)));
    frame.closeCard();
    update(hasFocus);
  }

  /** Bring everything that depends on step and element up to date. */
  function update(isFocused = board.hasFocus) {
    const { codes, columns, kinds, labels, belongs, told, sums, strip: memory } = chain.steps[at];
    const { names, tokens } = state.inputs[chain.input];
    const width = columns.length;
    const here = codes.indexOf(code);
    const style = (c) => state.shades[chain.input][tokens[c]];
    if (here >= 0) board.place(Math.floor(here / width), here % width);
    board.update((i, j) => {
      const n = i * width + j;
      return {
        text: names[codes[n]],
        style: style(codes[n]),
        kind: kinds[n] + (n === belongs[code] ? " attn-want" : ""),
        label: labels[n],
      };
    }, isFocused);
    strip.replaceChildren(...memory.map((group, g) => h("span", {}, ...group.map((c, n) =>
      h("b", { class: c === code && "attn-here" },
        h("i", { style: style(c) }, names[c]), String(6 * g + n))))));
    sum.replaceChildren(...words(sums[code]));
    frame.say(told[code]);
    frame.compare(question(at));
  }

  show(chain);
  frame.open();
}
