// The page as its visitors use it. Build it first.
import assert from "node:assert/strict";
import { readFile, writeFile, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { open, ready, web } from "./served.mjs";

let site, page;
const errors = [];

before(async () => {
  site = await open();
  page = await site.browser.newPage();
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
});
after(async () => {
  await site.close();
});

const fresh = async (hash = "") => {
  await page.goto("about:blank");
  await page.goto(site.address + hash);
  await ready(page);
};
const figure = (name) => page.locator(`[data-figure=${name}]`).first().innerText();
const field = (label) => page.getByLabel(label, { exact: true }).first();

async function changed(label, value) {
  const before = await page.evaluate(() => location.hash);
  const control = field(label);
  if ((await control.evaluate((it) => it.tagName)) === "SELECT") await control.selectOption(value);
  else {
    await control.fill(value);
    await control.press("Tab");
  }
  await page.waitForFunction((hash) => location.hash !== hash, before);
  await ready(page);
}

test("every control changes the answer as it should", async () => {
  await fresh();
  const rate = async () => Number(await figure("rate"));
  const first = await rate();
  assert.ok(first > 0);
  await changed("Weights", "q8_0");
  const larger = await rate();
  assert.ok(larger < first, "more bytes, fewer tokens");
  await changed("Weights", "q4_k_m");
  assert.equal(await rate(), first);
  await changed("RAM, GB", "192");
  assert.ok((await rate()) >= first * 0.999);
  await changed("Modules", "2x DDR4-3200");
  assert.ok((await rate()) < first);
  await changed("Modules", "2x DDR5-5600");
  await changed("GPU (empty: none)", "rtx-5090");
  assert.ok((await rate()) > first);
  await changed("How many GPUs", "2");
  await changed("Link to the GPU", "pcie5-x16");
  await changed("CPU", "ryzen-9950x");
  await changed("KV cache", "fp8");
  await changed("Prompt tokens", "4096");
  await changed("Answer tokens", "64");
  await changed("Sequences at once", "4");
  await changed("Best at", "throughput");
  await changed("Name", "qwen3-30b-a3b");
  assert.match(await page.locator("article").innerText(), /qwen3-30b-a3b on .*5090/);
  await page.getByLabel("engine").selectOption("vllm");
  await page.waitForFunction(() => /vllm serve|cannot|vllm/.test(document.querySelector("article").innerText));
  await changed("Described by", "a name or words");
  assert.match(await page.locator("article").innerText(), /rtx4090-desktop/);
  await changed("Machine, as RTX 4090, i7-14700K, 64 GB", "RTX 3060, Ryzen 5 5600, 32 GB DDR4-3200");
  assert.match(await page.locator("article").innerText(), /on rtx-3060-12, ryzen-5600, 32 GB/);
});

test("two machines stand side by side, and the address holds the state", async () => {
  await fresh();
  await page.getByText("Compare with a second machine").click();
  await ready(page, 2);
  await page.getByLabel("GPU (empty: none)").nth(1).fill("rtx-5090");
  await page.getByLabel("GPU (empty: none)").nth(1).press("Tab");
  await page.waitForFunction(() => /5090/.test(document.querySelectorAll("article")[1].innerText));
  await ready(page, 2);
  const rates = await page.locator("[data-figure=rate]").allInnerTexts();
  assert.ok(Number(rates[1]) > Number(rates[0]), rates.join(" "));
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await ready(page, 2);
  assert.deepEqual(await page.locator("[data-figure=rate]").allInnerTexts(), rates);
});

test("a part that several devices share is drawn, and curves end at what the plan says", async () => {
  await fresh();
  await changed("GPU (empty: none)", "rtx-3060");
  await changed("Name", "qwen3-30b-a3b");
  assert.match(await page.locator(".names").innerText(), /experts/);
  await page.getByText("Layer by layer").click();
  assert.match(await page.getByRole("region", { name: "the layers" }).innerText(), /experts\s+hbm \d+ % \+ dram \d+ %/);
  // The chart over sequences begins with the one that is asked about.
  const rate = Number(await figure("rate")).toFixed(1);
  const chart = page.getByRole("img", { name: /^tok\/s over sequences at once: 1: / });
  await page.waitForFunction(
    (words) => [...document.querySelectorAll("[aria-label]")].some((it) => it.getAttribute("aria-label").startsWith(words)),
    `tok/s over sequences at once: 1: ${rate},`,
    { timeout: 60_000 },
  );
  await page.waitForFunction(() => !/not known yet/.test(document.querySelector(".curves").innerHTML), null, { timeout: 60_000 });
  assert.match(await chart.getAttribute("aria-label"), /64: \d/);
});

test("wrong names and what does not fit are said in words", async () => {
  await fresh();
  await field("Name").fill("lama-3.1-8b");
  await field("Name").press("Tab");
  await page.getByRole("alert").first().waitFor();
  assert.match(await page.getByRole("alert").first().innerText(), /^This cannot be answered. Model is .*llama-3.1-8b/);
  await field("Name").fill("deepseek-v3");
  await field("Name").press("Tab");
  await page.getByText("Nothing fits.").waitFor();
});

test("a config.json of one's own is read, and one that is no model says what is wrong", async () => {
  await fresh();
  const folder = await mkdtemp(join(tmpdir(), "page-"));
  const config = { model_type: "llama", hidden_size: 2048, num_hidden_layers: 3, num_attention_heads: 16,
    intermediate_size: 4096, vocab_size: 1000, max_position_embeddings: 8192 };
  await writeFile(join(folder, "mine.json"), JSON.stringify(config));
  await writeFile(join(folder, "broken.json"), "{}");
  await page.getByText("A model of your own").click();
  await page.getByLabel("config.json or GGUF file").setInputFiles(join(folder, "broken.json"));
  await page.getByText(/model_type/).waitFor();
  await page.getByLabel("config.json or GGUF file").setInputFiles(join(folder, "mine.json"));
  await page.getByText("mine was read").waitFor();
  await page.waitForFunction(() => /mine on/.test(document.querySelector("article")?.innerText ?? ""));
});

test("it is usable by keyboard and clean for axe, wide and narrow, light and dark", async () => {
  const axe = await readFile(join(web, "node_modules", "axe-core", "axe.min.js"), "utf8");
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1400, 390]) {
      const view = await site.browser.newPage({ colorScheme, viewport: { width, height: 900 } });
      await view.goto(site.address);
      await ready(view);
      await view.evaluate(axe);
      const found = await view.evaluate(() => window.axe.run());
      const words = found.violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" ")}`);
      assert.deepEqual(words, [], `${colorScheme}, ${width}`);
      const overflow = await view.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${width}: ${overflow} px too wide`);
      if (process.env.SHOTS) await view.screenshot({ path: join(process.env.SHOTS, `${colorScheme}-${width}.png`), fullPage: true });
      await view.close();
    }
  }
  await fresh();
  await page.keyboard.press("Tab");
  const focused = await page.evaluate(() => document.activeElement?.tagName);
  assert.ok(["SELECT", "INPUT", "BUTTON", "A"].includes(focused), focused);
});

test("nothing leaves the tab, and nothing fails on the way", async () => {
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await fresh();
  await changed("Sequences at once", "2");
  assert.ok(asked.every((url) => url.startsWith(site.address) || url.startsWith("about:") || url.startsWith("data:")), asked.join(" "));
  assert.deepEqual(errors, []);
});
