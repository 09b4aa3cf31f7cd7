// Follow the element in a browser. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const { chains, inputs } = JSON.parse(readFileSync(settings.state, "utf8"));

const focus = async (page) => {
  await page.locator("[role=gridcell][tabindex='0']").focus();
};
const choose = async (page, place) => {
  await page.locator(".attn-stage select").selectOption({ index: place });
  await focus(page);
};
/** What the figure shows of its step and its element. */
const look = (page) => page.evaluate(() => {
  const text = (selector) => document.querySelector(`.attn-stage ${selector}`)?.textContent;
  const squares = [...document.querySelectorAll(".attn-stage [data-cell]")];
  return {
    element: text("[aria-selected=true]"),
    place: text(".attn-here")?.slice(text(".attn-here i").length),
    sum: text(".attn-sum").replaceAll("\u00a0", " "),
    told: text("[role=status]"),
    step: text("[aria-current=true] strong"),
    order: squares.map((square) => square.textContent),
    off: squares.filter((s) => s.classList.contains("attn-off")).map((s) => s.textContent),
    want: squares.findIndex((s) => s.classList.contains("attn-want")),
    verdicts: [...document.querySelectorAll(".attn-stage .attn-verdict")].map((v) => v.innerText),
    pressed: text("[aria-pressed=true]") !== undefined,
  };
});
/** The place in memory of the n-th element, from the axes backwards. */
function placeOf({ shape, strides, offset }, n) {
  let [rest, place] = [n, offset];
  for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
    place += (rest % shape[axis]) * strides[axis];
    rest = Math.floor(rest / shape[axis]);
  }
  return place;
}

/** Hold one step against the recording. */
function compare(shown, chain, at, code, check) {
  const step = chain.steps[at];
  const { names } = inputs[chain.input];
  const where = `${chain.name}, step ${at}, ${names[code]}`;
  const here = step.codes.indexOf(code);
  const off = step.codes.filter((c, n) => step.wanted && c !== step.wanted[n]);
  const place = placeOf(step, here);
  check(shown.step === step.call, `${where}: is at ${shown.step}`);
  check(`${shown.order}` === `${step.codes.map((c) => names[c])}`, `${where}: shows ${shown.order}`);
  check(shown.element === names[code], `${where}: the cursor is on ${shown.element}`);
  check(shown.place === String(place), `${where}: the strip marks ${shown.place}, not ${place}`);
  check(shown.sum.endsWith(`= place ${place}`), `${where}: says ${shown.sum}`);
  const [left] = shown.sum.match(/[\d·+ A-Z]+(?= = )/);
  const total = [...left.matchAll(/(\d+)·(\d+)(?= \+|$)/g)]
    .reduce((sum, [, i, stride]) => sum + i * stride, 0);
  check(total === place, `${where}: ${left} is ${total}`);
  check(`${shown.off}` === `${off.map((c) => names[c])}`, `${where}: marks ${shown.off}`);
  if (step.wanted) {
    const right = step.wanted.indexOf(code);
    check(shown.want === (right === here ? -1 : right), `${where}: wants ${shown.want}`);
    const says = `${off.length || "No"} of ${step.codes.length} elements are misplaced`;
    check(shown.told.includes(says), `${where}: tells ${shown.told}`);
  }
}

await report({
  async "every chain is walked by keyboard and shows its recording"(check) {
    const page = await open("light.html");
    for (const [place, chain] of chains.entries()) {
      await choose(page, place);
      await page.keyboard.press("Home");
      const code = inputs[chain.input].names.indexOf((await look(page)).element);
      for (let at = 0; at < chain.steps.length; at += 1) {
        if (at) await page.keyboard.press("Space");
        compare(await look(page), chain, at, code, check);
      }
      const { verdicts, pressed } = await look(page);
      const most = Math.max(...chain.steps.map(({ codes, wanted }) =>
        codes.filter((c, n) => wanted && c !== wanted[n]).length));
      const all = chain.steps[0].codes.length;
      check(verdicts[0].startsWith(most ? "✗" : "✓"), verdicts[0]);
      check(verdicts[0].includes(`${most} of ${all} misplaced (${(100 * most / all).toFixed(1)}%)`), verdicts[0]);
      check(verdicts.slice(1).every((v) => v.startsWith("✓")), verdicts.join());
      check(pressed === Boolean(most), `${chain.name}: B is ${pressed}`);
    }
    check(page.faults.length === 0, page.faults.join());
  },

  async "arrows and buttons pick every element, and it is followed"(check) {
    const page = await open("light.html");
    const [chain] = chains;
    const { names } = inputs.x;
    await focus(page);
    for (const key of ["ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft"]) {
      await page.keyboard.press(key);
    }
    const next = page.getByLabel("next element");
    for (let code = 0; code < names.length; code += 5) {
      await focus(page);
      await page.keyboard.press("End");
      compare(await look(page), chain, chain.steps.length - 1, code, check);
      await page.keyboard.press("Home");
      compare(await look(page), chain, 0, code, check);
      for (let n = 0; n < 5; n += 1) await next.click();
    }
    await page.getByLabel("element before").click();
    check((await look(page)).element === names[0], `back at ${(await look(page)).element}`);
  },

  async "B goes to the wrong way and back at the same step"(check) {
    const page = await open("light.html");
    await focus(page);
    await page.keyboard.press("End");
    await page.keyboard.press("b");
    const wrong = await look(page);
    compare(wrong, chains[1], 1, inputs.x.start, check);
    check(wrong.off.length === chains[1].run.misplaced, `${wrong.off.length} are marked`);
    await page.keyboard.press("b");
    compare(await look(page), chains[0], 2, inputs.x.start, check);
    await choose(page, chains.findIndex((c) => c.beside === null));
    await page.keyboard.press("b");
    check((await look(page)).told.startsWith("No other way"), (await look(page)).told);
  },

  async "the walk notices a square that is marked wrongly"(check) {
    const page = await open("spoilt.html");
    const found = [];
    await focus(page);
    await page.keyboard.press("End");
    compare(await look(page), chains[0], 2, inputs.x.start, (isTrue, says) => isTrue || found.push(says));
    check(found.length === 1 && found[0].includes("marks 0·3"), `it found ${found}`);
  },
});
