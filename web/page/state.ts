// What the visitor chose. It is kept in the address, so that a link shows the same answer.

export interface Parts {
  cpu: string;
  gpu: string;
  gpus: number;
  link: string;
  ram: number;
  modules: string;
}

/** A shipped machine by its name, or parts. */
export type MachineChoice = { named: string } | { parts: Parts };

export interface State {
  machines: MachineChoice[];
  model: string;
  weights: string;
  kv: string;
  batch: number;
  prompt: number;
  output: number;
  objective: string;
  engine: string;
}

export type Scenario = Record<string, unknown>;

export const WEIGHTS = [
  "published", "bf16", "fp8", "int8", "int4", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "iq4_xs", "q3_k_m", "q2_k",
  "mxfp4", "nvfp4",
];
export const KV = ["bf16", "fp8", "q8_0", "q4_0"];
export const OBJECTIVES = {
  latency: "latency: the whole answer",
  tpot: "tpot: each token",
  throughput: "throughput: all sequences",
  energy: "energy",
};
export const MODULES = [
  "2x DDR4-3200", "2x DDR5-4800", "2x DDR5-5600", "2x DDR5-6000", "2x DDR5-6400", "4x DDR5-4800", "8x DDR4-3200",
  "8x DDR5-4800", "8x DDR5-5600", "12x DDR5-4800", "12x DDR5-6400",
];

export const PARTS: Parts = {
  cpu: "i7-14700k",
  gpu: "rtx-4090",
  gpus: 1,
  link: "pcie4-x16",
  ram: 96,
  modules: "2x DDR5-5600",
};

export const START: State = {
  machines: [{ parts: PARTS }],
  model: "llama-3.1-70b",
  weights: "q4_k_m",
  kv: "bf16",
  batch: 1,
  prompt: 1024,
  output: 256,
  objective: "latency",
  engine: "llama.cpp",
};

/** The scenario that asks about one of the machines. */
export function scenario(state: State, machine: MachineChoice): Scenario {
  return {
    machine: "named" in machine ? machine.named : composed(machine.parts),
    model: state.model,
    dtype: { weights: state.weights, kv: state.kv },
    objective: state.objective,
    workload: { batch: state.batch, prompt_tokens: state.prompt, output_tokens: state.output },
  };
}

function composed(parts: Parts): Scenario {
  const gpu = parts.gpus > 1 ? { part: parts.gpu, count: parts.gpus } : parts.gpu;
  const dram = { capacity: `${parts.ram} GB`, modules: parts.modules };
  return parts.gpu === "" ? { cpu: parts.cpu, dram } : { cpu: parts.cpu, dram, gpu, link: parts.link };
}

/** The state that an address holds. What it does not hold is as at the start. */
export function fromAddress(hash: string): State {
  try {
    const read = JSON.parse(decodeURIComponent(hash.replace(/^#/, ""))) as Partial<State>;
    const machines = Array.isArray(read.machines) && read.machines.length > 0 ? read.machines : START.machines;
    const whole = machines.map((it) => ("parts" in it ? { parts: { ...PARTS, ...it.parts } } : it));
    return { ...START, ...read, machines: whole };
  } catch {
    return START;
  }
}

export const toAddress = (state: State) => `#${encodeURIComponent(JSON.stringify(state))}`;
