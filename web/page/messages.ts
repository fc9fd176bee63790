// What the page and its worker tell each other.

export type Question =
  | { kind: "ask"; text: string }
  | { kind: "config"; name: string; text: string }
  | { kind: "gguf"; name: string; header: Uint8Array; length: number };

export interface Request {
  id: number;
  question: Question;
}

export interface Response {
  id: number;
  text: string;
}
