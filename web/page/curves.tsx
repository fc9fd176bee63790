// How the answer changes with the length of the prompt and with the batch.
import { useEffect, useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Numbers } from "./planner/answers";
import type { Planner } from "./planner/planner";
import { axisStyle, colour, Plot } from "./plot";
import { scenario, type Scenario, type State } from "./state";

const LENGTHS = [512, 2048, 8192, 32768, 131072];
const BATCHES = [1, 2, 4, 8, 16, 32, 64];

const shortened = (value: number) => (value >= 1024 ? `${value / 1024}k` : String(value));

interface Curve {
  title: string;
  axis: string;
  values: number[];
  change: (state: State, value: number) => State;
}

const CURVES: Curve[] = [
  { title: "tok/s over the prompt's length", axis: "prompt tokens", values: LENGTHS, change: (state, prompt) => ({ ...state, prompt }) },
  { title: "tok/s over sequences at once", axis: "sequences", values: BATCHES, change: (state, batch) => ({ ...state, batch }) },
];

/** `null` where there is no plan, `undefined` where that is not known yet. */
type Rates = (number | null | undefined)[][];

/** How long the state must stay before its curves are asked for. */
const STILL_MS = 300;

/** The rates for each machine and value, filled in as they come: first without a search, then as the plan itself is found. */
function useRates(planner: Planner, state: State, curve: Curve): Rates {
  const [rates, setRates] = useState<Rates>([]);
  const key = JSON.stringify(state);
  useEffect(() => {
    const asking = new AbortController();
    const { signal } = asking;
    const found: Rates = state.machines.map(() => curve.values.map(() => undefined));
    setRates(found.map((row) => [...row]));
    const fill = async (numbers: (asked: Scenario) => Promise<Numbers | undefined>) => {
      for (const [at, value] of curve.values.entries()) {
        for (const [machine, choice] of state.machines.entries()) {
          const answer = await numbers(scenario(curve.change(state, value), choice));
          if (signal.aborted) return;
          found[machine]![at] = answer?.decode_tokens_per_s ?? null;
          setRates(found.map((row) => [...row]));
        }
      }
    };
    const manner = { rank: "later", signal } as const;
    const timer = setTimeout(async () => {
      await fill(async (asked) => (await planner.numbers(asked, manner)).answer);
      if (!signal.aborted) await fill(async (asked) => (await planner.plan(asked, manner)).answer?.numbers);
    }, STILL_MS);
    return () => {
      asking.abort();
      clearTimeout(timer);
    };
  }, [key]);
  return rates;
}

function Chart({ planner, state, curve }: { planner: Planner; state: State; curve: Curve }) {
  const rates = useRates(planner, state, curve);
  const data = useMemo((): uPlot.AlignedData => (rates.length === 0 ? [[]] : [curve.values, ...rates]), [rates]);
  const options = () => ({
    height: 200,
    padding: [null, 24, null, null] as uPlot.Padding,
    legend: { show: rates.length > 1, live: false },
    scales: { x: { time: false, distr: 3, log: 2 }, y: { range: (_: uPlot, __: number, most: number): uPlot.Range.MinMax => [0, (most || 1) * 1.1] } },
    axes: [
      {
        ...axisStyle(),
        label: curve.axis,
        splits: () => curve.values,
        filter: (_: uPlot, splits: number[]) => splits,
        values: (_: uPlot, splits: number[]) => splits.map(shortened),
      },
      { ...axisStyle(), label: "tok/s", size: 60, space: 25 },
    ],
    series: [
      { label: curve.axis },
      ...rates.map((_, at) => ({
        label: `machine ${"AB"[at]}`,
        stroke: colour(at === 0 ? "--gpu" : "--cpu"),
        width: 2,
        points: { show: true, size: 7 },
        spanGaps: true,
      })),
    ],
  }) as Omit<uPlot.Options, "width">;
  const said = (it: number | null | undefined) => (it === undefined ? "not known yet" : it === null ? "no plan" : it.toFixed(1));
  const words = rates.map((row) => row.map((it, at) => `${curve.values[at]}: ${said(it)}`).join(", "));
  // Where not even the first points have a plan, there is nothing to draw yet.
  const answered = rates.flat().filter((it) => it !== undefined);
  if (answered.length > 0 && answered.every((it) => it === null)) return null;
  const without = rates.map((row) => curve.values.filter((_, at) => row[at] === null).map(shortened).join(", "));
  return (
    <div>
      <Plot title={curve.title} words={words.join("; ")} data={data} options={options} />
      {without.map((values, at) => values !== "" && <small>{rates.length > 1 ? `Machine ${"AB"[at]}: no` : "No"} plan at {values}. </small>)}
    </div>
  );
}

export function Curves({ planner, state }: { planner: Planner; state: State }) {
  return (
    <section class="curves">
      {CURVES.map((curve) => (
        <Chart planner={planner} state={state} curve={curve} />
      ))}
    </section>
  );
}
