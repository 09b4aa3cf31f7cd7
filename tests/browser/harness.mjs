// What the browser tests share: a browser, a page that keeps its books, and
// checks that report instead of throwing. See tests/browser/conftest.py.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

export const settings = JSON.parse(process.env.BROWSER_TEST);
const require = createRequire(join(settings.modules, "x.js"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const browser = await chromium.launch({
  executablePath: settings.chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});

// A window costs a Chromium far more than a page in it, so one window per kind
// of reader stays open; each page finds its store empty.
const windows = new Map();

/** Open a page; what it says to the console and asks from others is kept. */
export async function open(file, options = {}) {
  const kind = options.init ? null : JSON.stringify(options);
  const known = windows.get(kind);
  if (known) {
    if (options.javaScriptEnabled !== false) {
      await known.evaluate(() => localStorage.clear());
    }
    await known.emulateMedia({ media: null });
  }
  const page = known ?? await openWindow(options);
  if (kind) windows.set(kind, page);
  page.faults = [];
  page.asked = [];
  await page.goto(file.includes(":") ? file : `file://${settings.pages}/${file}`);
  return page;
}

async function openWindow({ width = 1000, init, ...rest }) {
  const context = await browser.newContext({
    viewport: { width, height: 900 }, ...rest,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(8000);
  page.on("console", (m) => {
    if (["error", "warning"].includes(m.type())) page.faults.push(m.text());
  });
  page.on("pageerror", (error) => page.faults.push(error.message));
  page.on("request", (request) => {
    const { protocol } = new URL(request.url());
    if (!["file:", "data:", "blob:", "about:"].includes(protocol)) page.asked.push(request.url());
  });
  if (init) await page.addInitScript(init);
  return page;
}

/** The rules that axe-core finds broken, with the first element of each. */
export async function violations(page, selector, rules) {
  await page.evaluate(AXE);
  // Preloading would fetch style sheets, which file:// forbids.
  const result = await page.evaluate(([where, runOnly]) =>
    window.axe.run(where ?? document, { preload: false, ...(runOnly && { runOnly }) }),
  [selector, rules]);
  return result.violations.map((v) =>
    `${v.id} (${v.nodes.length}): ${v.nodes[0].html.slice(0, 120)}`);
}

/** Whether the page scrolls sideways, as [content, window]. */
export function widths(page) {
  return page.evaluate(() => [
    document.documentElement.scrollWidth, document.documentElement.clientWidth,
  ]);
}

/** Run named checks one after the other; print {name: [complaints]}. */
export async function report(checks) {
  const found = {};
  for (const [name, check] of Object.entries(checks)) {
    const complaints = [];
    const began = performance.now();
    try {
      await check((isTrue, complaint) => { if (!isTrue) complaints.push(complaint); });
    } catch (error) {
      complaints.push(error.stack);
    }
    found[name] = complaints;
    process.stderr.write(`${((performance.now() - began) / 1000).toFixed(1)} s ${name}\n`);
  }
  await browser.close();
  process.stdout.write(JSON.stringify(found));
}
