// What only the ledger and the saturation figure do, by keyboard: every state
// tells the numbers of its run. Prints {check: [complaints]}.
import { readFileSync } from "node:fs";
import { open, report, settings } from "./harness.mjs";

const read = (name) => JSON.parse(readFileSync(`${settings.pages}/${name}.json`, "utf8"));
const told = (page) => page.locator("[role=status]").first().innerText();
const strip = (page) => page.locator(".attn-stage .attn-verdict").allInnerTexts();
const count = (n) => n.toLocaleString("en");
const choose = async (page, label, index) => {
  await page.getByLabel(label).selectOption({ index });
  await page.locator("[role=gridcell][tabindex='0']").focus();
};
const sum = (list) => list.reduce((a, b) => a + b, 0);

await report({
  async "the ledger tells the counts of every entry, and its limit"(check) {
    const state = read("ledger");
    const page = await open("ledger-light.html");
    for (const [n, setting] of state.settings.entries()) {
      await choose(page, "sizes", n);
      for (let left = 0; left < 4; left += 1) await page.keyboard.press("ArrowLeft");
      for (const [j] of setting.S.entries()) {
        if (j) await page.keyboard.press("ArrowRight");
        await page.keyboard.press("Home");
        for (const [i, kernel] of setting.kernels.entries()) {
          if (i) await page.keyboard.press("Space");
          const { moved, flops, counted, attainable: [[y]] } = setting.entries[i][j];
          const says = await told(page);
          const place = `${setting.name}, ${kernel}, ${setting.S[j]}: ${says}`;
          check(says.startsWith(`${setting.S[j]} keys, ${kernel}, ${counted[0] ? "recorded" : "by formula"}`), place);
          check(says.includes(`${count(flops)} FLOP for ${count(sum(moved))} numbers`), place);
          check(says.includes(`at most ${y.toFixed(2)} of 8.10`), place);
          check(says.includes(y < 8.1 ? "memory is" : "arithmetic is"), place);
          const measured = (await strip(page)).filter((v) => v.includes("measured ÷ formula"));
          check(measured.length === (counted[0] ? 2 : 0), `${place}: ${measured.length} verdicts`);
          check(measured.every((v) => v.startsWith("✓") && v.includes("1.0000")), measured.join());
        }
        await page.keyboard.press("Home");
      }
    }
  },

  async "another device has another roof, another dtype another intensity"(check) {
    const state = read("ledger");
    const page = await open("ledger-light.html");
    for (const [n, device] of state.devices.entries()) {
      for (const [t, dtype] of state.dtypes.entries()) {
        await choose(page, "device", n);
        await choose(page, "dtype", t);
        const says = await told(page);
        const entry = state.settings[0].entries[0][0];
        check(says.includes(`On ${device.name} `), says);
        check(says.includes(`at most ${entry.attainable[n][t].toFixed(2)} of ${device.peak[t].toFixed(2)}`),
          `${dtype.name}: ${says}`);
      }
    }
  },

  async "every width tells its run, and B takes the factor away"(check) {
    const state = read("saturation");
    const page = await open("saturation-light.html");
    await choose(page, "look at", 0);
    await page.keyboard.press("Home");
    for (const [i, row] of state.runs.entries()) {
      for (const [j, run] of row.entries()) {
        if (i || j) await page.keyboard.press("Space");
        const says = await told(page);
        check(says.startsWith(`D ${state.widths[j]}, ${i ? "raw" : "÷ √D"}`), says);
        check(says.includes(`std ${run.std.toFixed(2)}`) && says.includes(`entropy ${run.entropy.toFixed(2)}`), says);
        check((await strip(page))[0].startsWith("✓"), says);
      }
    }
    await page.keyboard.press("b");
    check((await told(page)).startsWith(`D ${state.widths.at(-1)}, ÷ √D`), "B does not bring the factor back");
    const bars = await page.locator(".attn-plot").first().locator("rect").count();
    check(bars === state.runs[0][0].counts.length, `${bars} bars`);
  },

  async "every mask shows NaN where its run has it"(check) {
    const state = read("saturation");
    const page = await open("saturation-light.html");
    const names = [...new Set(state.masks.map((m) => m.name))];
    for (const [n, name] of names.entries()) {
      await choose(page, "look at", n + 1);
      await page.keyboard.press("Home");
      for (const [at, mask] of state.masks.filter((m) => m.name === name).entries()) {
        if (at) await page.keyboard.press("Space");
        const lost = mask.plain.grads.filter((x) => x === null).length;
        const says = await told(page);
        check(says.includes(`${lost} of 7 gradients`) && says.endsWith("With ours: 0."), says);
        const squares = await page.locator(".attn-stage [data-cell]").allInnerTexts();
        check(squares.filter((text) => text === "NaN").length === lost, `${says}: ${squares}`);
        const forbidden = await page.locator(".attn-stage [aria-label=forbidden]").count();
        check(forbidden === 35 - sum(mask.keep), `${says}: ${forbidden} forbidden`);
        check((await strip(page)).every((v) => v.startsWith("✓")), says);
        const pressed = await page.getByRole("button", { name: "Mistake" }).getAttribute("aria-pressed");
        check(pressed === String(mask.flipped), `${says}: pressed ${pressed}`);
      }
    }
  },
});
