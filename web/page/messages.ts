// What the page asks its worker, which answers each question with the planner's JSON.

export type Question =
  | { kind: "ask"; text: string }
  | { kind: "config"; name: string; text: string }
  | { kind: "gguf"; name: string; header: Uint8Array; length: number };
