// Asks the planner: `fulcrum web` where the page came from it, otherwise the worker.
import type { Answer, Catalog, Explanation, Exported, Plan, Preset, Roofline } from "./answers";
import type { Question, Response } from "./messages";
import type { Scenario } from "./state";

type Ask = (question: Question) => Promise<string>;

/** The worker with the WebAssembly module. */
function worker(): Ask {
  const thread = new Worker("worker.js");
  const waiting = new Map<number, (text: string) => void>();
  let last = 0;
  thread.onmessage = (event: MessageEvent<Response>) => {
    waiting.get(event.data.id)?.(event.data.text);
    waiting.delete(event.data.id);
  };
  thread.onerror = () => {
    const text = JSON.stringify({ error: { kind: "failed", text: "the planner could not be loaded" } });
    for (const [id, answered] of waiting) {
      answered(text);
      waiting.delete(id);
    }
  };
  return (question) =>
    new Promise((answered) => {
      last += 1;
      waiting.set(last, answered);
      thread.postMessage({ id: last, question });
    });
}

/** The planner behind the page's own server. */
const server: Ask = async (question) => {
  const [path, body] =
    question.kind === "ask"
      ? ["api/ask", question.text]
      : question.kind === "config"
        ? [`api/config?name=${encodeURIComponent(question.name)}`, question.text]
        : [`api/gguf?name=${encodeURIComponent(question.name)}&length=${question.length}`, question.header as BodyInit];
  return (await fetch(path, { method: "POST", body })).text();
};

export class Planner {
  private constructor(private readonly ask: Ask) {}

  /** The native planner where there is one. */
  static async connect(): Promise<Planner> {
    const native = location.protocol.startsWith("http") && document.documentElement.dataset["planner"] === "native";
    return new Planner(native ? server : worker());
  }

  private async json<T>(question: Question): Promise<Answer<T>> {
    try {
      return JSON.parse(await this.ask(question)) as Answer<T>;
    } catch (error) {
      return { error: { kind: "failed", text: `the planner does not answer: ${String(error)}` } };
    }
  }

  private about<T>(ask: string, more: object = {}): Promise<Answer<T>> {
    return this.json<T>({ kind: "ask", text: JSON.stringify({ ask, ...more }) });
  }

  catalog = () => this.about<Catalog>("catalog");
  plan = (scenario: Scenario) => this.about<Plan>("plan", { scenario });
  explain = (scenario: Scenario) => this.about<Explanation>("explain", { scenario });
  roofline = (scenario: Scenario) => this.about<Roofline>("roofline", { scenario });
  export = (scenario: Scenario, engine: string) => this.about<Exported>("export", { scenario, engine });
  addConfig = (name: string, text: string) => this.json<Preset>({ kind: "config", name, text });
  addGguf = (name: string, header: Uint8Array, length: number) =>
    this.json<Preset>({ kind: "gguf", name, header, length });
}
