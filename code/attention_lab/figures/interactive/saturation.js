/**
 * F2, saturation and masks: what width and forbidden keys do to a softmax.
 *
 * Data: `saturation.v1`, as `attention_lab.steps.saturation` writes it. Nothing
 * is computed here but differences and counts.
 */
import { Refusal, checkSchema, decimal, h, needs, range, short, valueStyle } from "./base.js";
import { PLOT_STYLE, axis, plot } from "./plot.js";
import { choice, figure, grid, scene, walk } from "./scene.js";

export default figure(stage);

/**
 * Check the state; what can be looked at comes back: all widths, then each mask.
 * @throws {Refusal} with a sentence
 */
export function readSaturation({ schema, runs, masks, widths, mask_sizes: [L, S] = [] }) {
  checkSchema({ schema }, "saturation.v1");
  if (!runs?.length || !masks?.length) throw new Refusal("the recording is empty.");
  if (S > 7) throw new Refusal(`axis S has size ${S}; at most 7 can be drawn.`);
  const all = runs.flat();
  all.forEach((run, n) => needs(called(widths, run, n),
    [run.std, run.ratio, run.entropy, run.gradient, ...run.counts, ...run.weights],
    4 + all[0].counts.length + all[0].weights.length));
  for (const { name, keep, ours } of masks) needs(name, [...keep, ...ours.weights], 2 * L * S);
  return [{ name: "head width D", all }, ...[...new Set(masks.map((m) => m.name))]
    .map((name) => ({ name, all: masks.filter((m) => m.name === name) }))];
}

/** How many of some numbers are NaN, which null stands for. */
export function lost(numbers) {
  return numbers.filter((x) => x === null).length;
}

/** How a state is called. */
export function called(widths, one, at) {
  return one.keep
    ? `True ${one.flipped ? "forbids" : "allows"}, row 2 ${one.empty ? "without keys" : "as it is"}`
    : `D ${widths[at % widths.length]}, ${at < widths.length ? "÷ √D" : "raw"}`;
}

/** What the next state will show. */
export function questionAt({ name, all }, widths, at) {
  const next = all[at + 1];
  if (!next) return null;
  const many = next.keep && lost(next.plain.grads);
  const change = next.entropy - all[at].entropy;
  return {
    id: `${name}/${at}`,
    text: `Next: ${called(widths, next, at + 1)}. ` + (next.keep
      ? "The loss reads row 0 alone. How many gradients are NaN with the plain softmax?"
      : "What happens to the entropy?"),
    options: next.keep ? ["none", "some", "all"] : ["falls", "stays within 0.1", "rises"],
    answer: next.keep ? (many ? 1 + (many === next.plain.grads.length) : 0)
      : Math.abs(change) <= 0.1 ? 1 : 1 + Math.sign(change),
  };
}

/** Build the stage in `el`. */
export function stage(state, el) {
  const views = readSaturation(state);
  const [widest] = views;
  const { widths, end, mask_sizes: [L, S] } = state;
  let [view, at] = [widest, 0];
  const board = grid("", land, 36);
  const [{ counts, weights }] = widest.all;
  const bars = (name, many, ticks, up, most) => plot(axis(0, many, name, ticks),
    axis(0, most, up, [[most, `${most}`]]), { height: 90 });
  const scores = bars("score", counts.length, [[0, `−${end}`], [counts.length, `${end}`]], "how many",
    Math.max(...widest.all.flatMap((run) => run.counts)));
  const row = bars("keys, largest first", weights.length, [], "weights of row 0", 1);
  const title = h("p", { class: "attn-title4" });
  const draw = (where, what, numbers) => where.draw(what, numbers.map((x, n) => ({ bar: [n, n + 1, x] })));
  const plots = h("div", { class: "attn-parts" }, scores.el, row.el);
  const steps = walk((by) => go(Math.min(Math.max(at + by, 0), view.all.length - 1)), "state");
  const mistake = () => go((at + view.all.length / 2) % view.all.length);
  const frame = scene(el, {
    name: "saturation",
    style: PLOT_STYLE,
    controls: [choice("look at", views.map((v) => v.name), (n) => { view = views[n]; build(); }).el],
    body: [title, h("div", { class: "attn-parts" }, board.el, plots)],
    tools: [...steps.tools, ["Mistake", mistake, "B"]],
    keys: { ...board.keys, ...steps.keys, b: mistake },
    help: [["← → ↑ ↓", "move over the squares"], ...steps.help, ["B", "no factor, or True forbids"]],
    home: board.focus,
    question: () => questionAt(view, widths, at),
    next: steps.keys.PageDown,
  });

  function build() {
    const isWidth = view === widest;
    plots.hidden = !isWidth;
    const told = isWidth ? "Mean entropy of a row" : "Weights, then gradients of the values";
    title.textContent = told;
    board.build(isWidth ? ["÷ √D", "raw"] : [...range(L), "ours", "plain"], isWidth ? widths : range(S), told);
    go(isWidth ? 1 : 0); // products of single numbers are not yet normal
  }

  function land([i, j], isFocused) {
    go(view === widest ? i * widths.length + j : at, isFocused);
  }

  function go(place, isFocused = board.hasFocus) {
    at = place;
    if (view === widest) board.place(Math.floor(at / widths.length), at % widths.length);
    frame.closeCard();
    const one = view.all[at];
    const name = called(widths, one, at);
    const square = (x, style) => {
      const text = x === null ? "NaN" : short(x);
      return { text, label: text, kind: x === null ? "attn-skipped" : "attn-seen", style };
    };
    board.update((i, j) => {
      if (!one.keep) return square(state.runs[i][j].entropy);
      if (i >= L) return square(one[i === L ? "ours" : "plain"].grads[j]);
      const weight = one.ours.weights[i * S + j];
      return one.keep[i * S + j] ? square(weight, valueStyle(weight)) : { kind: "attn-skipped", label: "forbidden" };
    }, isFocused);
    if (one.keep) {
      const { plain, ours } = one;
      frame.say(`${view.name}: ${name}. NaN with the plain softmax: ${lost(plain.weights)} weights, ` +
        `${lost(plain.grads)} of ${S} gradients, though the loss reads row 0 alone. With ours: ${lost(ours.grads)}.`);
    } else {
      frame.say(`${name}: scores with std ${decimal(one.std)}, largest weight ${decimal(one.weights[0])}, ` +
        `entropy ${decimal(one.entropy)} of at most ${decimal(state.even)}, gradient ${decimal(one.gradient)}.`);
      draw(scores, `Scores, ${name}`, one.counts);
      draw(row, `Weights, ${name}`, one.weights);
    }
    frame.press(2, at >= view.all.length / 2);
    frame.verdicts(one.checked);
    frame.compare(at ? questionAt(view, widths, at - 1) : null);
  }

  build();
  frame.open();
}
