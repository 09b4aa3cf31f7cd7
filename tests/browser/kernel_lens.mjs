// What only the kernel lens does, by keyboard. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const state = JSON.parse(readFileSync(settings.state, "utf8"));
const told = (page) => page.locator("[role=status]").first().innerText();
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};
async function start(version = 0) {
  const page = await open("kernel_lens-light.html");
  await page.locator(".attn-stage select").first().selectOption({ index: version });
  await page.locator("[role=gridcell][tabindex='0']").first().focus();
  return page;
}
const unroll = (runs) => runs.flatMap((_, n) => (n % 3 ? []
  : Array.from({ length: runs[n + 2] }, (__, k) => runs[n] + k * runs[n + 1])));
const rows = (run) => run.events.data[0].map((_, n) =>
  Object.fromEntries(run.events.columns.map((c, k) => [c, run.events.data[k][n]])));

await report({
  async "Space walks through every request as it was recorded"(check) {
    for (const [place, { name, recording }] of state.versions.entries()) {
      const page = await start(place);
      await press(page, "Home");
      for (const [n, row] of rows(recording).slice(0, 12).entries()) {
        if (n) await press(page, "Space");
        const says = await told(page);
        const { line } = recording.sites[row.site];
        const lanes = unroll(row.threads);
        check(says.includes(`line ${line}:`) && says.includes(`Request ${n + 1} of`)
          && says.includes(`${lanes.length} lanes`), `${name}, request ${n}: ${says}`);
        const lit = await page.locator(".attn-lines tr:has(.attn-here)").innerText();
      const { label } = recording.memory[recording.sites[row.site].memory];
      check(lit.includes(`${recording.sites[row.site].kind} ${label}`) && lit.includes(line), `${name}, request ${n}: ${lit} is lit`);
      const caption = await page.locator(".attn-lens caption").innerText();
      check(caption.startsWith(`${label},`), `${name}, request ${n}: the rows are those of ${caption}`);
      const seen = await page.locator(".attn-seen").count();
        check(seen === lanes.length, `${name}, request ${n}: ${seen} lanes are lit`);
      }
    }
  },

  async "B shows the race: two threads, two lines, and their sentence"(check) {
    const page = await start();
    check(await page.locator(".attn-off").count() === 0, "a right kernel is marked");
    await press(page, "b");
    const [{ threads, lines, sentence }] = state.versions[1].recording.hazards;
    const marked = await page.locator(".attn-off").allInnerTexts();
    check(`${marked}` === `${[...threads].sort((a, b) => a - b).map((t) => `✗${t}`)}`, `marked: ${marked}`);
    const found = await page.locator(".attn-lines tr td:first-child").allInnerTexts();
    const bad = new Set(found.filter((t) => t.startsWith("✗")).map((t) => Number(t.slice(2))));
    check(bad.size === 2 && lines.every((line) => bad.has(line)), `lines: ${found}`);
    const text = await page.locator(".attn-stage").innerText();
    check(text.includes(sentence), "the sentence is missing");
    await press(page, "b");
    check(await page.locator(".attn-off").count() === 0, "B does not take it back");
  },

  async "arrows choose the thread, PgDn the stretch between barriers"(check) {
    const page = await start();
    await press(page, "ArrowDown", "ArrowRight");
    check((await told(page)).startsWith("Thread 9 of block 0"), await told(page));
    await press(page, "t");
    check((await told(page)).startsWith("Thread 10 of block 0"), await told(page));
    await press(page, "ArrowLeft", "PageDown");
    check((await told(page)).includes("read tile[54]"), await told(page));
    await press(page, "PageUp", "End");
    check((await told(page)).includes("Request 8 of 8"), await told(page));
    await press(page, "Home");
    check((await told(page)).includes("read x[9]"), await told(page));
  },

  async "32 sectors fill 32 rows, and 32 passes one bank"(check) {
    let page = await start(2);
    await press(page, "Home");
    check(await page.locator(".attn-lens tr").count() === 32, "not 32 rows");
    check(await page.locator(".attn-lens .attn-cell").count() === 32, "not 32 squares");
    page = await start(3);
    await press(page, "PageDown");
    const bad = await page.locator(".attn-lens td.attn-bad").allInnerTexts();
    check(`${bad}` === "32", `banks: ${bad}`);
  },
});
