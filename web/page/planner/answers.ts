// The answers of the planner, as `fulcrum::PageSession` writes them.

export interface Times {
  ttft_s: number;
  tpot_s: number | null;
}

export interface MemoryUse {
  weights: number;
  kv: number;
  activations: number;
  staging: number;
}

export interface Numbers extends Times {
  machine: string;
  model: string;
  formats: string;
  batch: number;
  output_tokens: number;
  chosen: string;
  decode_tokens_per_s: number | null;
  energy_per_token_j: number | null;
  bound: Times;
  rules: Record<string, Times>;
  memory: Record<string, MemoryUse>;
}

export type Home = string | Record<string, number>;

export interface Sublayer {
  home: Home;
  prefill: Home;
  decode: Home;
}

/** A part of a matrix whose parts lie in several places. */
export interface Portion extends Sublayer {
  share: number;
}

export type LayerGroup = { first: number; count: number } & Record<string, Sublayer | Portion[] | number>;

export interface Plan {
  numbers: Numbers;
  bands: { ttft?: [number, number]; tpot?: [number, number] };
  layers: LayerGroup[];
  holds: Record<string, number>;
  document: string;
}

export interface Worth {
  what: string;
  gain: number;
  times: { ttft: string; tpot?: string };
}

export interface Explanation {
  binding: { phase: string; at_least: string; bound_by: string; busy: { what: string; share?: number }[] }[];
  more: Worth[];
  parts: Worth[];
  text: string;
}

export interface DeviceRoof {
  name: string;
  peak_flop_per_s: number | null;
  bandwidth_byte_per_s: number;
}

export interface OperatorPoint {
  phase: "prefill" | "decode";
  device: string;
  operator: string;
  flop_per_byte: number;
  flop_per_s: number;
  share: number;
}

export interface Roofline {
  devices: DeviceRoof[];
  points: OperatorPoint[];
}

export interface Exported {
  engine: string;
  command: string;
  files: Record<string, string>;
  cannot: string[];
  plan: Numbers;
  nearest: Numbers;
}

export interface Part {
  name: string;
  summary: string;
}

export interface Preset {
  name: string;
  parameters: number;
  active_parameters: number;
  positions: number;
}

export interface Catalog {
  machines: Part[];
  cpus: Part[];
  gpus: Part[];
  links: Part[];
  models: Preset[];
  engines: string[];
}

export interface Failure {
  kind: "input" | "infeasible" | "failed";
  text: string;
  key?: string | null;
  wanted?: string | null;
}

export type Answer<T> = { answer: T; error?: undefined } | { answer?: undefined; error: Failure };
