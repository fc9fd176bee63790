// The module plans as the command does, on fifty scenarios. FULCRUM names the command.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { web } from "./served.mjs";

const target = process.env.CARGO_TARGET_DIR ?? join(web, "target");
const command = process.env.FULCRUM ?? join(web, "..", "target", "release", "fulcrum");
const { default: init, Planner } = await import(join(target, "bindings", "fulcrum_web.js"));
await init({ module_or_path: readFileSync(join(web, "dist", "fulcrum.wasm")) });

const machines = ["rtx4090-desktop", "l4", "h100-sxm", "spr-a100", "ryzen-ai-max-395-128gb"];
const models = ["llama-3.1-8b", "qwen3-30b-a3b", "llama-3.1-70b", "gpt-oss-20b", "opt-1.3b"];
const loads = [{ batch: 1, prompt_tokens: 512, output_tokens: 64 }, { batch: 8, prompt_tokens: 128, output_tokens: 32 }];

const scenarios = machines.flatMap((machine) =>
  models.flatMap((model) => loads.map((workload) => ({ machine, model, dtype: { weights: "int4" }, workload }))),
);

const near = (a, b) => Math.abs(a - b) <= 1e-6 * Math.max(Math.abs(a), Math.abs(b));
const value = (text) => Number.parseFloat(text);

test("the answers that the page was built with are the module's", () => {
  const answers = JSON.parse(readFileSync(join(web, "dist", "answers.json"), "utf8"));
  assert.equal(Object.keys(answers).length, 5);
  const planner = new Planner();
  for (const [question, answer] of Object.entries(answers)) assert.equal(planner.answer(question), answer, question);
});

test(`the native plan, ${scenarios.length} times`, () => {
  const folder = mkdtempSync(join(tmpdir(), "native-"));
  const planner = new Planner();
  let planned = 0;
  for (const scenario of scenarios) {
    const file = join(folder, "scenario.json");
    writeFileSync(file, JSON.stringify(scenario));
    let native;
    try {
      native = JSON.parse(execFileSync(command, ["plan", file, "--json"], { stdio: ["ignore", "pipe", "ignore"] }));
    } catch (error) {
      assert.equal(error.status, 3, JSON.stringify(scenario));
    }
    const { answer, error } = JSON.parse(planner.answer(JSON.stringify({ ask: "plan", scenario })));
    if (native === undefined) {
      assert.equal(error?.kind, "infeasible", JSON.stringify(scenario));
      continue;
    }
    planned += 1;
    assert.deepEqual(answer.layers, native.layers, JSON.stringify(scenario));
    const { ttft } = native.predicted.simulated;
    const scale = { s: 1, ms: 1e-3, us: 1e-6, "µs": 1e-6 }[ttft.split(" ")[1]];
    assert.ok(near(answer.numbers.ttft_s, value(ttft) * scale), `${ttft}: ${answer.numbers.ttft_s}`);
  }
  assert.ok(planned > 30, `${planned} fit`);
});
