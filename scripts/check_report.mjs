// The reader of scripts/check_report.sh: opens the pages that lie beside it in a browser, and fails at what is wrong.
import { chromium } from "playwright-core";
import { statSync } from "node:fs";
import { resolve } from "node:path";

const LIMITS = { paint: 2000, bytes: 15e6 };
const faults = [];
const browser = await chromium.launch({ executablePath: process.argv[2], args: ["--no-sandbox"] });

function check(holds, words) {
  if (!holds) faults.push(words);
}

async function open(file, options, use) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && faults.push(`${file}: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`${file}: ${error}`));
  page.on("dialog", (dialog) => { faults.push(`${file}: ran a script of a name`); return dialog.dismiss(); });
  page.on("request", (request) => /^(file|data):/.test(request.url()) || faults.push(`${file}: fetches ${request.url()}`));
  const start = performance.now();
  await page.goto(`file://${resolve(file)}`, { waitUntil: "load" });
  // Painted: two frames after the script has drawn.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const took = performance.now() - start;
  await use(page, took);
  await context.close();
}

const rowsShown = async (page) => Number((await page.locator(".explorer [role=status]").first().textContent()).split(" ")[0]);
const fitsPhone = (page) => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);

await open("sweep.html", { viewport: { width: 1280, height: 900 } }, async (page, took) => {
  const bytes = statSync("sweep.html").size;
  console.log(`sweep of 100,000 points: ${(bytes / 1e6).toFixed(1)} MB, painted after ${took.toFixed(0)} ms`);
  check(took <= LIMITS.paint, `painted after ${took} ms, at most ${LIMITS.paint}`);
  check(bytes <= LIMITS.bytes, `${bytes} bytes, at most ${LIMITS.bytes}`);
  check(await rowsShown(page) === 100_000, "all rows are shown at first");
  const filter = page.locator(".controls label", { hasText: "plan" }).last().locator("select");
  await filter.selectOption({ label: "<img src=x onerror=alert(1)>" });
  check(await rowsShown(page) === 33_333, "a filter leaves the rows of its value");
  const start = performance.now();
  await filter.selectOption({ label: "all" });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));
  console.log(`  drawn again after ${(performance.now() - start).toFixed(0)} ms`);
  await page.locator(".explorer img").count().then((count) => check(count === 0, "a name became markup"));
});

await open("points.html", { viewport: { width: 1280, height: 900 } }, async (page) => {
  const canvas = page.locator("canvas").first();
  const tip = page.locator(".tip").first();
  await canvas.scrollIntoViewIfNeeded();
  await canvas.focus();
  await page.keyboard.press("ArrowRight");
  check(await tip.isVisible(), "an arrow key shows a point");
  const words = await tip.textContent();
  await page.keyboard.press("ArrowRight");
  check(await tip.textContent() !== words, "the next arrow key shows the next point");
  await page.keyboard.press("Enter");
  check(await page.locator(".detail tr").count() > 5, "Enter shows the whole row");
  await page.keyboard.press("Escape");
  check(!(await tip.isVisible()), "Escape hides the point");
  // Somewhere among the points: along a line through the canvas there is one.
  const box = await canvas.boundingBox();
  let hovered = false;
  for (let step = 0; step < 60 && !hovered; step++) {
    await page.mouse.move(box.x + box.width * (0.1 + 0.014 * step), box.y + box.height * (0.85 - 0.01 * (step % 20)));
    hovered = await tip.isVisible();
  }
  check(hovered, "the pointer shows a point");
  if (hovered) check((await tip.textContent()).includes("workload."), "a point tells what was set");
  const before = await canvas.screenshot();
  await page.locator(".controls select").nth(1).selectOption("duration_s");
  check(!before.equals(await canvas.screenshot()), "another axis is another picture");
  await page.locator(".controls label", { hasText: "between" }).locator("select").selectOption("workload.batch");
  await page.locator("input[type=number]").first().fill("91");
  check(await rowsShown(page) === 50, "a range leaves the rows within it");
});

await open("all.html", { viewport: { width: 1280, height: 900 } }, async (page) => {
  const bars = page.locator("svg[data-time]").first().locator("rect.bar");
  const region = page.locator("div:has(> svg[data-time])").first();
  const widths = () => bars.evaluateAll((all) => all.map((bar) => Number(bar.getAttribute("width"))));
  const before = await widths();
  await page.getByRole("button", { name: "twice as long" }).first().click();
  const after = await widths();
  check(before.length > 0 && after.every((width, at) => Math.abs(width - 2 * before[at]) < 1e-6), "a click on + makes every task twice as long");
  await region.focus();
  await page.keyboard.press("+");
  check(await region.evaluate((it) => it.scrollWidth > 3 * it.clientWidth), "the key + stretches time again, and it can be scrolled");
  await page.keyboard.press("0");
  check((await widths()).every((width, at) => width === before[at]), "the key 0 shows the whole step again");
});

for (const [name, options] of [
  ["light", { viewport: { width: 1280, height: 900 }, colorScheme: "light" }],
  ["dark", { viewport: { width: 1280, height: 900 }, colorScheme: "dark" }],
  ["phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true }],
]) {
  for (const file of ["all", "points"]) {
    await open(`${file}.html`, options, async (page) => {
      await page.screenshot({ path: `${file}-${name}.png`, fullPage: true });
      if (name === "phone") check(await fitsPhone(page), `${file}.html is wider than a phone`);
      if (name === "light") await page.pdf({ path: `${file}.pdf`, format: "A4" });
      const unnamed = await page.evaluate(() => [...document.querySelectorAll("[tabindex], select, input, a")]
        .filter((it) => !it.ariaLabel && !it.textContent.trim() && !it.labels?.length).length);
      check(unnamed === 0, `${file}.html has ${unnamed} controls without a name`);
      const ids = await page.evaluate(() => [...document.querySelectorAll("[id]")].map((it) => it.id).filter((it) => it !== "hatch"));
      check(new Set(ids).size === ids.length, `${file}.html has two elements of one id`);
      const lost = await page.evaluate(() => [...document.querySelectorAll("nav a")].filter((it) => !document.querySelector(it.hash)).length);
      check(lost === 0, `${file}.html has links to nowhere`);
    });
  }
}
console.log(`all.html: ${(statSync("all.html").size / 1e6).toFixed(1)} MB`);
await browser.close();
for (const fault of faults) console.error(`FAULT ${fault}`);
if (faults.length === 0) console.log("no faults");
process.exitCode = faults.length === 0 ? 0 : 1;
