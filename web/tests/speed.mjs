// How long a visitor waits: the first answer, and the answers after changes. `node tests/speed.mjs`
import { open, ready } from "./served.mjs";

const site = await open();
const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
const firsts = [];
for (let run = 0; run < 5; run += 1) {
  const context = await site.browser.newContext();
  const page = await context.newPage();
  const begin = performance.now();
  await page.goto(site.address);
  await ready(page);
  firsts.push(performance.now() - begin);
  await context.close();
}
const page = await site.browser.newPage();
await page.goto(site.address);
await ready(page);
const later = [];
for (const value of ["q8_0", "q6_k", "iq4_xs", "q5_k_m", "int4", "q4_k_m", "mxfp4", "bf16", "q4_0"]) {
  const begin = performance.now();
  await page.getByLabel("Weights", { exact: true }).selectOption(value);
  await page.waitForFunction((text) => decodeURIComponent(location.hash).includes(`"weights":"${text}"`), value);
  await page.waitForFunction(() => document.querySelector("article[data-ready], [role=alert]"));
  later.push(performance.now() - begin);
}
console.log(`first answer: ${median(firsts).toFixed(0)} ms (median of ${firsts.length})`);
console.log(`later answers: ${median(later).toFixed(0)} ms (median), ${Math.max(...later).toFixed(0)} ms (worst)`);
await site.close();
