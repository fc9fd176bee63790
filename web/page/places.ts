// Where layers compute and lie: parts, their shares, and the colour of each place.
import type { Home, LayerGroup, Plan, Portion } from "./planner/answers";
import { percent } from "./quantities";

const SUBLAYERS = ["qkv", "attention", "out", "ffn_up", "ffn_down", "router", "experts", "shared_expert"];

type Aspect = "home" | "prefill" | "decode";

/** The parts of a layer in the order in which they run; one that several devices share has several portions. */
export function sublayers(group: LayerGroup): [string, Portion[]][] {
  const known = Object.entries(group).flatMap(([name, it]): [string, Portion[]][] => {
    if (typeof it === "number") return [];
    return [[name, Array.isArray(it) ? it : [{ share: 1, ...it }]]];
  });
  const order = (name: string) => SUBLAYERS.indexOf(name) + 1 || 99;
  return known.sort((a, b) => order(a[0]) - order(b[0]));
}

/** The share of each place, the largest first. */
function shares(portions: Portion[], aspect: Aspect): [string, number][] {
  const sums = new Map<string, number>();
  for (const portion of portions) {
    const home: Home = portion[aspect];
    for (const [place, share] of Object.entries(typeof home === "string" ? { [home]: 1 } : home)) {
      sums.set(place, (sums.get(place) ?? 0) + share * portion.share);
    }
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** Where the larger part of something is. */
export const mostly = (portions: Portion[], aspect: Aspect): string => shares(portions, aspect)[0]?.[0] ?? "";

export function shown(portions: Portion[], aspect: Aspect): string {
  const all = shares(portions, aspect);
  return all.length === 1 ? all[0]![0] : all.map(([place, share]) => `${place} ${percent(share)}`).join(" + ");
}

const FAMILIES = ["cpu", "dram", "gpu", "hbm"];

/** The places of a plan, each with its colour: the same in every plan for what every machine has. */
export function tones(plan: Plan): Map<string, string> {
  const all = plan.layers.flatMap((group) =>
    sublayers(group).flatMap(([, portions]) =>
      (["decode", "home"] as const).flatMap((aspect) => shares(portions, aspect).map(([place]) => place)),
    ),
  );
  const tones = new Map<string, string>();
  let others = 0;
  for (const place of [...new Set(all)].sort()) {
    const family = FAMILIES.find((it) => place.startsWith(it) && ![...tones.values()].includes(`place-${it}`));
    tones.set(place, `place-${family ?? `other-${others++ % 3}`}`);
  }
  return tones;
}

/** What people call a memory. */
export const memory = (name: string) => ({ dram: "RAM (dram)", hbm: "GPU memory (hbm)" })[name] ?? name;
