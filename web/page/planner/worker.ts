// The planner in a thread of its own, so that the page stays responsive.
import init, { Planner } from "fulcrum-bindings";
import type { Question } from "./messages";

let planner: Promise<Planner> | undefined;

// The module comes first, then questions.
self.onmessage = async ({ data }: MessageEvent<WebAssembly.Module | Question>) => {
  if (data instanceof WebAssembly.Module) {
    planner = init({ module_or_path: data }).then(() => new Planner());
    return;
  }
  let text: string;
  try {
    text = answer((await planner)!, data);
  } catch (error) {
    text = JSON.stringify({ error: { kind: "failed", text: String(error) } });
  }
  self.postMessage(text);
};

function answer(planner: Planner, question: Question): string {
  switch (question.kind) {
    case "ask":
      return planner.answer(question.text);
    case "config":
      return planner.add_config(question.name, question.text);
    case "gguf":
      return planner.add_gguf(question.name, question.header, question.length);
  }
}
