// What only the stage card does, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const state = JSON.parse(readFileSync(settings.state, "utf8"));
const { recording, source } = state.kernels[0];
const told = (page) => page.locator("[role=status]").first().innerText();
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};
async function start() {
  const page = await open("stage_card-light.html");
  await page.locator("[role=gridcell][tabindex='0']").first().focus();
  return page;
}
const rows = recording.events.data[0].map((_, n) =>
  Object.fromEntries(recording.events.columns.map((c, k) => [c, recording.events.data[k][n]])));
const count = (runs) => runs.filter((_, n) => n % 3 === 2).reduce((a, b) => a + b, 0);
const lit = (page, name) => page.evaluate((label) => {
  const one = [...document.querySelectorAll(".attn-array")].find(
    (e) => e.querySelector("strong").textContent === label);
  return one.querySelectorAll(".attn-read, .attn-write").length;
}, name);

await report({
  async "one cursor lights the line, the threads and the elements"(check) {
    const page = await start();
    for (const [n, row] of rows.slice(0, 24).entries()) {
      if (n) await press(page, "Space");
      const site = recording.sites[row.sites[0]];
      const place = `step ${n + 1}`;
      const says = await told(page);
      check(says.includes(`line ${site.line}.`) && says.includes(`Step ${n + 1} of ${rows.length}`), `${place}: ${says}`);
      const line = await page.locator("[aria-selected=true]").innerText();
      check(line.trim() === site.text, `${place}: the line ${line} is lit`);
      check(await lit(page, "threads") === count(row.threads), `${place}: threads`);
      for (const [k, number] of row.sites.entries()) {
        const { label } = recording.memory[recording.sites[number].memory];
        check(await lit(page, label) >= count(row.elements[k]), `${place}: ${label}`);
      }
      const isSeen = await page.evaluate(() => {
        const box = document.querySelector(".attn-code").getBoundingClientRect();
        const one = document.querySelector("[aria-selected=true]").getBoundingClientRect();
        return one.top >= box.top && one.bottom <= box.bottom + 1;
      });
      check(isSeen, `${place}: the line is out of sight`);
    }
  },

  async "the source moves the arrays: a line with memory goes to its step"(check) {
    const page = await start();
    const at = async () => Number((await told(page)).match(/line (\d+)/i)[1]);
    const first = await at();
    await press(page, "ArrowDown");
    const lines = source.map(([line]) => line);
    const next = lines[lines.indexOf(first) + 1];
    check(await at() === next, `down: line ${await at()}, not ${next}`);
    const touching = new Set(rows.map((row) => recording.sites[row.sites[0]].line));
    const is = touching.has(next);
    check((await told(page)).includes("touches no memory") === !is, await told(page));
    await press(page, "End");
    check((await told(page)).includes(`Step ${rows.length} of`), await told(page));
    await press(page, "Home", "PageDown");
    const later = rows.findIndex((row) => row.epoch !== rows[0].epoch);
    check((await told(page)).includes(`Step ${later + 1} of`), await told(page));
    await press(page, "PageUp", "ArrowRight", "ArrowLeft");
    check((await told(page)).includes("Step 1 of"), await told(page));
  },

  async "the axes keep their letters and say what is touched"(check) {
    const page = await start();
    const text = await page.locator(".attn-array", { hasText: "q_BHLD" }).first().innerText();
    for (const letter of "BHLD") check(text.includes(letter), `${letter} is missing: ${text}`);
    check(text.includes("0–3/7") && text.includes("0–2/3"), text);
  },
});
