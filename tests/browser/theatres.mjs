// What the scripts of both theatres share: choosing, walking, reading numbers.

export const focusBoard = async (page) => {
  await page.evaluate(() => document.activeElement.blur());
  await page.locator("[role=gridcell][tabindex='0']").first().focus();
};

/** Choose an option as a keyboard does: Home, then Down. */
export async function choose(page, label, place) {
  await page.getByLabel(label).first().focus();
  await page.keyboard.press("Home");
  for (let n = 0; n < place; n += 1) await page.keyboard.press("ArrowDown");
  await focusBoard(page);
}

/** A number as a table of plain numbers writes it. */
export const decimal = (x) => (x === null ? "−∞"
  : x.toFixed(Math.abs(x) < 100 ? 2 : 1).replace(/^-(0\.00)$/, "$1").replace("-", "−"));

/** The sentence, the cursor, and the rows of every table by its caption. */
export const look = (page) => page.evaluate(() => ({
  says: document.querySelector("[role=status]").textContent,
  current: document.querySelector("[aria-selected=true]").textContent,
  tables: Object.fromEntries([...document.querySelectorAll(".attn-stage table")].map((t) =>
    [t.caption.textContent, [...t.tBodies[0].rows].map((r) =>
      [...r.querySelectorAll("td")].map((c) => c.textContent))])),
}));

export const strip = (page) => page.locator(".attn-stage .attn-verdict").allInnerTexts();

/** Whether a verdict shows this error, to its two digits. */
export const near = (text, error) => {
  const shown = text.match(/off by (\S+)/)[1].replace("−", "-");
  if (error === null) return shown === "∞";
  return Math.abs(Number(shown) - error) <= 0.05 * error;
};
