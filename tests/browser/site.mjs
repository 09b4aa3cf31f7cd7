// Every figure with a script on the built site. Prints {check: [complaints]}.
import { open, report, settings, violations, widths } from "./harness.mjs";

const checks = {};
for (const address of settings.site) {
  const name = address.split("/").at(-1);
  checks[`${name}: alive, silent, alone, accessible`] = async (check) => {
    for (const theme of ["light", "dark"]) {
      const page = await open(address, { colorScheme: theme });
      const figures = await page.locator("figure[data-attn]").count();
      check(figures > 0, "there is no figure");
      check(await page.locator("figure.attn-on").count() === figures, "a figure is not alive");
      // A theme changes colours only.
      const rules = theme === "dark" && ["color-contrast"];
      const found = await violations(page, "figure[data-attn]", rules);
      check(found.length === 0, `${theme}: ${found.join("; ")}`);
      check(page.asked.length === 0, page.asked.join());
      check(page.faults.length === 0, page.faults.join());
      const scripts = await page.evaluate(() =>
        [...document.querySelectorAll("script[data-attn-module]")].map((s) => s.dataset.attnModule));
      // Each output of a notebook may be alone in its frame; a page has all.
      check(settings.isNotebook || new Set(scripts).size === scripts.length, `modules twice: ${scripts}`);
    }
    const page = await open(address, { width: 320 });
    const [content, window] = await widths(page);
    check(content <= window, `${content} px wide`);
  };
}
await report(checks);
