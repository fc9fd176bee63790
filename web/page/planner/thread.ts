// A worker with the WebAssembly module.
import type { Question } from "./messages";
import type { Manner } from "./planner";

const MODULE = "fulcrum.wasm";

/** The module, compiled while it is read. */
export async function compiled(): Promise<WebAssembly.Module> {
  try {
    return await WebAssembly.compileStreaming(fetch(MODULE));
  } catch {
    // Some servers do not know the type of its file.
    return WebAssembly.compile(await (await fetch(MODULE)).arrayBuffer());
  }
}

const failed = (text: string) => JSON.stringify({ error: { kind: "failed", text } });

interface Waiting {
  question: Question;
  manner: Manner;
  answered: (text: string) => void;
}

/** It gets one question at a time, so that the next one is what is wanted most by then. */
export class Thread {
  private readonly worker = new Worker("worker.js");
  private waiting: Waiting[] = [];
  private asked: Waiting | undefined;
  /** Why it cannot answer. */
  private broken: string | undefined;
  private ready = false;
  private paused = false;

  constructor(module: Promise<WebAssembly.Module>) {
    this.worker.onmessage = (event: MessageEvent<string>) => this.answer(event.data);
    this.worker.onerror = () => this.fail("the planner could not be loaded");
    module.then(
      (module) => {
        this.worker.postMessage(module);
        this.ready = true;
        this.next();
      },
      (error) => this.fail(`the planner could not be loaded: ${String(error)}`),
    );
  }

  ask(question: Question, manner: Manner): Promise<string> {
    return new Promise((answered) => {
      this.waiting.push({ question, manner, answered });
      this.next();
    });
  }

  /** Begins nothing until it is resumed. */
  pause() {
    this.paused = true;
  }

  resume() {
    this.paused = false;
    this.next();
  }

  private next() {
    const unwanted = this.waiting.filter((it) => it.manner.signal?.aborted);
    this.waiting = this.waiting.filter((it) => !it.manner.signal?.aborted);
    for (const { answered } of unwanted) answered(failed("nobody waits for this answer"));
    if (this.broken !== undefined) {
      for (const { answered } of this.waiting.splice(0)) answered(this.broken);
    }
    if (!this.ready || this.paused || this.asked !== undefined) return;
    const next = this.waiting.find((it) => it.manner.rank !== "later") ?? this.waiting[0];
    if (next === undefined) return;
    this.asked = next;
    this.waiting = this.waiting.filter((it) => it !== next);
    this.worker.postMessage(next.question);
  }

  private answer(text: string) {
    this.asked?.answered(text);
    this.asked = undefined;
    this.next();
  }

  private fail(text: string) {
    this.broken = failed(text);
    this.answer(this.broken);
  }
}
