// Asks the planner: `fulcrum web` where the page came from it, otherwise the worker.
import type { Answer, Catalog, Explanation, Exported, Plan, Preset, Roofline } from "./answers";
import type { Question } from "./messages";
import type { Scenario } from "./state";

/** How a question is asked. */
export interface Manner {
  /** Whether every other question goes first. */
  later?: boolean;
  /** Aborted when nobody wants the answer any more: a question that still waits is then not asked. */
  signal?: AbortSignal;
}

type Ask = (question: Question, manner: Manner) => Promise<string>;

interface Waiting {
  question: Question;
  manner: Manner;
  answered: (text: string) => void;
}

/** The worker with the WebAssembly module. It gets one question at a time, so that what is asked last need not wait for all before it. */
function worker(): Ask {
  const thread = new Worker("worker.js");
  let waiting: Waiting[] = [];
  let asked: Waiting | undefined;
  const next = () => {
    waiting = waiting.filter((it) => !it.manner.signal?.aborted);
    const first = waiting.find((it) => !it.manner.later) ?? waiting[0];
    if (asked !== undefined || first === undefined) return;
    asked = first;
    waiting = waiting.filter((it) => it !== first);
    thread.postMessage(first.question);
  };
  const answer = (text: string) => {
    asked?.answered(text);
    asked = undefined;
    next();
  };
  thread.onmessage = (event: MessageEvent<string>) => answer(event.data);
  thread.onerror = () => answer(JSON.stringify({ error: { kind: "failed", text: "the planner could not be loaded" } }));
  return (question, manner) =>
    new Promise((answered) => {
      waiting.push({ question, manner, answered });
      next();
    });
}

/** The planner behind the page's own server. */
const server: Ask = async (question, { signal }) => {
  const [path, body] =
    question.kind === "ask"
      ? ["api/ask", question.text]
      : question.kind === "config"
        ? [`api/config?name=${encodeURIComponent(question.name)}`, question.text]
        : [`api/gguf?name=${encodeURIComponent(question.name)}&length=${question.length}`, question.header as BodyInit];
  return (await fetch(path, { method: "POST", body, signal: signal ?? null })).text();
};

export class Planner {
  private constructor(private readonly ask: Ask) {}

  /** The native planner where there is one. */
  static async connect(): Promise<Planner> {
    const native = location.protocol.startsWith("http") && document.documentElement.dataset["planner"] === "native";
    return new Planner(native ? server : worker());
  }

  private async json<T>(question: Question, manner: Manner = {}): Promise<Answer<T>> {
    try {
      return JSON.parse(await this.ask(question, manner)) as Answer<T>;
    } catch (error) {
      return { error: { kind: "failed", text: `the planner does not answer: ${String(error)}` } };
    }
  }

  private about<T>(ask: string, more: object = {}, manner: Manner = {}): Promise<Answer<T>> {
    return this.json<T>({ kind: "ask", text: JSON.stringify({ ask, ...more }) }, manner);
  }

  catalog = () => this.about<Catalog>("catalog");
  plan = (scenario: Scenario, manner: Manner) => this.about<Plan>("plan", { scenario }, manner);
  explain = (scenario: Scenario, manner: Manner) => this.about<Explanation>("explain", { scenario }, manner);
  roofline = (scenario: Scenario, manner: Manner) => this.about<Roofline>("roofline", { scenario }, manner);
  export = (scenario: Scenario, engine: string, manner: Manner) => this.about<Exported>("export", { scenario, engine }, manner);
  addConfig = (name: string, text: string) => this.json<Preset>({ kind: "config", name, text });
  addGguf = (name: string, header: Uint8Array, length: number) =>
    this.json<Preset>({ kind: "gguf", name, header, length });
}
