// A figure and its controls in JupyterLab. Prints {check: [complaints]}.
import { open, report, settings } from "./harness.mjs";

/**
 * Open the notebook, run all its cells, wait for both figures. What is asked
 * before the kernel has answered once is lost without a word, so it is asked
 * again.
 */
async function lab() {
  const page = await open(settings.address);
  page.setDefaultTimeout(90000);
  await page.locator(".jp-Notebook .jp-CodeCell").first().waitFor();
  for (let tries = 1; ; tries += 1) {
    await page.getByRole("menuitem", { name: "Run", exact: true }).click();
    await page.getByRole("menuitem", { name: "Run All Cells", exact: true }).click();
    try {
      await page.locator("figure.attn-on").nth(1).waitFor({ timeout: 30000 });
      return page;
    } catch (error) {
      if (tries === 3) throw error;
    }
  }
}

await report({
  async "the figure lives, and its keys do not reach the notebook"(check) {
    const page = await lab();
    const first = page.locator("figure.attn-on").first();
    const told = () => first.locator("[role=status]").innerText();
    const cells = await page.locator(".jp-Notebook .jp-CodeCell").count();
    await first.locator("[role=gridcell][tabindex='0']").focus();
    await page.keyboard.press("End");
    check((await told()).startsWith("Tile (3, 3)"), await told());
    // b, a and dd would add and remove cells in the notebook's command mode.
    for (const key of ["b", "a", "d", "d", "ArrowUp"]) await page.keyboard.press(key);
    check((await told()).startsWith("Tile (2, 3)"), await told());
    check(await page.locator(".jp-Notebook .jp-CodeCell").count() === cells, "the notebook has other cells");
  },

  async "a changed control runs the kernel again and redraws"(check) {
    const page = await lab();
    const box = page.locator(".widget-vbox, .jupyter-widgets.widget-box").first();
    check((await box.locator("figure.attn-on").first().innerText()).includes("16"), "no run of 16");
    await box.getByLabel("L", { exact: true }).selectOption("14");
    await page.waitForFunction(() => [...document.querySelectorAll(
      ".jupyter-widgets figure.attn-on")].some((f) =>
      f.querySelector(".attn-state").textContent.includes('"L":14')));
    check(page.faults.filter((f) => f.includes("attn")).length === 0, page.faults.join());
  },
});
