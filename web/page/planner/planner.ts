// Asks the planner: `fulcrum web` where the page came from it, otherwise workers.
import type { Answer, Catalog, Explanation, Exported, Numbers, Plan, Preset, Roofline } from "./answers";
import type { Question } from "./messages";
import type { Scenario } from "../state";
import { compiled, Thread } from "./thread";

/** How a question is asked. */
export interface Manner {
  /** The visitor waits for an answer, looks at details next, and sees later what is left. */
  rank: "answer" | "detail" | "later";
  /** Aborted when nobody wants the answer any more: a question that still waits is then not asked. */
  signal?: AbortSignal;
}

type Ask = (question: Question, manner: Manner) => Promise<string>;

/** The answers to the first view's questions, which were made with the page; none where that is not so. */
async function answersOfTheBuild(): Promise<Record<string, string>> {
  try {
    return (await (await fetch("answers.json")).json()) as Record<string, string>;
  } catch {
    return {};
  }
}

/** After an answer, how long nobody must ask for another one before details and curves are computed. */
const STILL_MS = 100;

/** The planner in the browser: one worker for answers, so that they wait for nothing else, and one for the rest. */
function workers(): Ask {
  const module = compiled();
  const first = new Thread(module);
  let second: Thread | undefined;
  let known = answersOfTheBuild();
  let isWarm = false;
  let answering = 0;
  let answered: () => void;
  const hasAnswered = new Promise<void>((resolve) => (answered = resolve));
  const other = () => {
    second ??= new Thread(module);
    if (answering > 0) second.pause();
    return second;
  };
  /** Asks for an answer. Meanwhile nothing else begins: two workers may have to share a core. */
  const answer = async (question: Question, manner: Manner) => {
    answering += 1;
    second?.pause();
    const text = await first.ask(question, manner);
    answering -= 1;
    answered();
    setTimeout(() => answering === 0 && second?.resume(), STILL_MS);
    return text;
  };
  return async (question, manner) => {
    if (question.kind !== "ask") {
      const text = await first.ask(question, manner);
      // The other worker must know the model too, and its name may be one that had another meaning.
      void other().ask(question, manner);
      known = Promise.resolve({});
      return text;
    }
    const text = (await known)[question.key];
    if (text !== undefined && (manner.rank !== "answer" || isWarm)) return text;
    if (manner.rank === "answer") {
      // Where the answer is known, to ask all the same once compiles what the next one needs.
      isWarm = true;
      const asked = answer(question, text === undefined ? manner : { rank: "answer" });
      return text ?? asked;
    }
    // Until there is an answer, it has all cores.
    await hasAnswered;
    return other().ask(question, manner);
  };
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
    return new Planner(native ? server : workers());
  }

  private async json<T>(question: Question, manner: Manner): Promise<Answer<T>> {
    try {
      return JSON.parse(await this.ask(question, manner)) as Answer<T>;
    } catch (error) {
      return { error: { kind: "failed", text: `the planner does not answer: ${String(error)}` } };
    }
  }

  /** `plan` is the document of the plan that the question is about. */
  private about<T>(ask: string, more: object, manner: Manner, plan?: string): Promise<Answer<T>> {
    const key = JSON.stringify({ ask, ...more });
    const text = plan === undefined ? key : JSON.stringify({ ask, ...more, plan });
    return this.json<T>({ kind: "ask", text, key }, manner);
  }

  catalog = () => this.about<Catalog>("catalog", {}, { rank: "detail" });
  plan = (scenario: Scenario, manner: Manner) => this.about<Plan>("plan", { scenario }, manner);
  /** The numbers of a plan that was not improved by search, as in a sweep. */
  numbers = (scenario: Scenario, manner: Manner) => this.about<Numbers>("numbers", { scenario }, manner);
  explain = (scenario: Scenario, plan: Plan, manner: Manner) =>
    this.about<Explanation>("explain", { scenario }, manner, plan.document);
  roofline = (scenario: Scenario, plan: Plan, manner: Manner) =>
    this.about<Roofline>("roofline", { scenario }, manner, plan.document);
  export = (scenario: Scenario, plan: Plan, engine: string, manner: Manner) =>
    this.about<Exported>("export", { scenario, engine }, manner, plan.document);
  addConfig = (name: string, text: string) => this.json<Preset>({ kind: "config", name, text }, { rank: "answer" });
  addGguf = (name: string, header: Uint8Array, length: number) =>
    this.json<Preset>({ kind: "gguf", name, header, length }, { rank: "answer" });
}
