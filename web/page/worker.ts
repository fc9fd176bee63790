// The planner in a thread of its own, so that the page stays responsive.
import init, { Planner } from "fulcrum-bindings";
import type { Question } from "./messages";

const ready = init({ module_or_path: "fulcrum.wasm" }).then(() => new Planner());

self.onmessage = async ({ data: question }: MessageEvent<Question>) => {
  let text: string;
  try {
    const planner = await ready;
    switch (question.kind) {
      case "ask":
        text = planner.answer(question.text);
        break;
      case "config":
        text = planner.add_config(question.name, question.text);
        break;
      case "gguf":
        text = planner.add_gguf(question.name, question.header, question.length);
        break;
    }
  } catch (error) {
    text = JSON.stringify({ error: { kind: "failed", text: String(error) } });
  }
  self.postMessage(text);
};
