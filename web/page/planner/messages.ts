// What the page asks its worker, which answers each question with the planner's JSON.

export type Question =
  /** `key` is the text without the plan that the page has already. */
  | { kind: "ask"; text: string; key: string }
  | { kind: "config"; name: string; text: string }
  | { kind: "gguf"; name: string; header: Uint8Array; length: number };
