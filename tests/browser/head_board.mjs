// The head board in a browser, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const { runs, L, E, cost } = JSON.parse(readFileSync(settings.state, "utf8"));
const told = (page) => page.locator("[role=status]").first().innerText();
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};
const focus = (page, grid) =>
  page.locator("[role=grid]").nth(grid).locator("[tabindex='0']").focus();
/** Texts, marks and the cursor of both grids. */
const look = (page) => page.evaluate(() =>
  [...document.querySelectorAll("[role=grid]")].map((grid) => {
    const squares = [...grid.querySelectorAll("[data-cell]")];
    const where = (kind) => squares.flatMap((s, n) => (s.matches(kind) ? [n] : []));
    return {
      texts: squares.map((s) => s.textContent),
      own: where(".attn-own"), hit: where(".attn-hit"),
      absent: where(".attn-skipped"), cursor: where("[aria-selected=true]"),
    };
  }));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const choose = async (page, run) => {
  await page.locator("select").selectOption({ index: runs.indexOf(run) });
  await focus(page, 1);
};
/** Open the page and answer nothing. */
const ready = async () => {
  const page = await open("head_board-light.html");
  await focus(page, 1);
  return page;
};

await report({
  async "every head of every run shows its rows and its places, both ways"(check) {
    const page = await ready();
    for (const run of runs) {
      await choose(page, run);
      for (const way of ["", "wrong_"]) {
        if (way) await press(page, "b");
        await press(page, "Home");
        for (let head = 0; head < run.H; head += 1) {
          if (head) await press(page, "Space");
          const place = `${run.name} ${way} head ${head}`;
          const [rows, out] = await look(page);
          const wanted = run[`${way}heads`].flatMap((own, n) => (own === head ? [n] : []));
          check(same(out.own, wanted), `${place}: places ${out.own}`);
          const texts = run[`${way}heads`].map((own, n) => `${own}·${run[`${way}tokens`][n]}`);
          check(same(out.texts, texts), `${place}: ${out.texts}`);
          const read = [...run.rows_q[head].map((r) => 3 * r),
            ...run.rows_kv[head].flatMap((r) => [3 * r + 1, 3 * r + 2])];
          check(same(rows.own, read.sort((a, b) => a - b)), `${place}: rows ${rows.own}`);
          check(rows.absent.length === 2 * (run.H - run.G) * run.D, `${place}: ${rows.absent}`);
          const says = await told(page);
          check(says.includes(`Head ${head}, turn ${head}`), `${place}: ${says}`);
          const value = run[`${way}out`][out.cursor[0]].toFixed(4).replace("-", "−");
          check(says.includes(`holds ${value}`), `${place}: ${says} is not ${value}`);
        }
        await page.locator(".attn-stage .attn-verdict").first().innerText().then((text) =>
          check(text.startsWith(way && run.H > 1 ? "✗" : "✓"), `${run.name} ${way}: ${text}`));
        if (way) await press(page, "b");
      }
    }
    check(page.faults.length === 0, page.faults.join());
  },

  async "a head switched off marks what changed in its run, and no more"(check) {
    const page = await ready();
    for (const run of runs) {
      await choose(page, run);
      for (const way of ["", "wrong_"]) {
        if (way) await press(page, "b");
        await press(page, "Home");
        for (let head = 0; head < run.H; head += 1) {
          if (head) await press(page, "Space");
          await press(page, "o");
          const [, out] = await look(page);
          const off = run.off[head][`${way}out`];
          const wanted = run[`${way}out`].flatMap((x, n) => (x !== off[n] ? [n] : []));
          check(wanted.length === L * run.D && same(out.hit, wanted),
            `${run.name} ${way} head ${head}: ${out.hit}`);
          const says = await told(page);
          const tokens = new Set(wanted.map((n) => Math.floor(n / E))).size;
          check(says.includes(`${wanted.length} of ${L * E} numbers, ${tokens} of ${L} tokens`), says);
          const value = off[out.cursor[0]].toFixed(4).replace("-", "−");
          check(says.includes(`head ${head} off, ${value}`), `${says} is not ${value}`);
          if (head % 2 || run.H === 1) {
            await press(page, "o");
            check((await look(page))[1].hit.length === 0, `${run.name}: O does not take it back`);
          }
        }
        if (way) await press(page, "b");
      }
    }
  },

  async "the two boards move each other"(check) {
    const page = await ready();
    await choose(page, runs.find((run) => run.H === 4 && run.G === 2));
    await press(page, "Home", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight");
    let [rows, out] = await look(page);
    check(same(out.cursor, [2 * E + 2]) && same(rows.cursor, [6]), `${out.cursor}, ${rows.cursor}`);
    await focus(page, 0);
    await press(page, "ArrowDown", "ArrowDown");
    [rows, out] = await look(page);
    check(same(rows.cursor, [12]) && same(out.cursor, [2 * E + 4]), `${out.cursor}, ${rows.cursor}`);
    await press(page, "ArrowRight");
    check((await told(page)).startsWith("Head 2"), "a row that is not there changes the head");
    await press(page, "ArrowUp", "ArrowUp", "ArrowUp");
    check((await told(page)).startsWith("Head 0"), `a shared row: ${await told(page)}`);
  },

  async "the questions follow each other, and their answers are shown"(check) {
    const page = await ready();
    const card = page.locator(".attn-card");
    for (const words of ["What grows", "Set the rows of W_q of head 0", "Merge without"]) {
      await press(page, "p");
      check((await card.innerText()).includes(words), await card.innerText());
      await press(page, "s");
    }
    await press(page, "p");
    check((await told(page)).startsWith("Nothing is left"), await told(page));
    const costs = await page.locator(".attn-stage table").innerText();
    for (const n of cost.runs) check(costs.includes(runs[n].scores), costs);
    check(same(await page.locator(".attn-button[aria-pressed=true]").allInnerTexts(),
      ["Head offO", "No permuteB"]), "the buttons are not pressed");
  },
});
