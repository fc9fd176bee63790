// How long a visitor waits: the first answer, and the answers after changes. `node tests/speed.mjs`
import { open, ready } from "./served.mjs";

const site = await open();
const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];

/** Times to the answer at `address`, each in a browser that has seen nothing. */
async function firsts(address) {
  const times = [];
  for (let run = 0; run < 5; run += 1) {
    const context = await site.browser.newContext();
    const page = await context.newPage();
    const begin = performance.now();
    await page.goto(address);
    await ready(page);
    times.push(performance.now() - begin);
    await context.close();
  }
  return `${median(times).toFixed(0)} ms (median of ${times.length})`;
}

const page = await site.browser.newPage();
const changed = async (change) => {
  const begin = performance.now();
  const before = await page.evaluate(() => location.hash);
  await change();
  await page.waitForFunction((before) => location.hash !== before, before);
  await ready(page);
  return performance.now() - begin;
};

console.log(`first answer: ${await firsts(site.address)}`);
await page.goto(site.address);
await ready(page);
const early = await changed(() => page.getByLabel("Weights", { exact: true }).selectOption("q6_k"));
// The answer to this one is not made with the page.
const link = page.url();
const later = [];
for (const value of ["q8_0", "q6_k", "iq4_xs", "q5_k_m", "int4", "q4_k_m", "mxfp4", "bf16", "q4_0"]) {
  later.push(await changed(() => page.getByLabel("Weights", { exact: true }).selectOption(value)));
}
await page.close();
console.log(`first answer of a link to another state: ${await firsts(link)}`);
console.log(`a change at once after the first answer: ${early.toFixed(0)} ms`);
console.log(`later answers: ${median(later).toFixed(0)} ms (median), ${Math.max(...later).toFixed(0)} ms (worst)`);
await site.close();
