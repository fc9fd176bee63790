// How the answer changes with the length of the prompt and with the batch.
import { useEffect, useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Planner } from "./planner";
import { axisStyle, colour, Plot } from "./plot";
import { scenario, type State } from "./state";

const LENGTHS = [512, 2048, 8192, 32768, 131072];
const BATCHES = [1, 2, 4, 8, 16, 32, 64];

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

type Rates = (number | null)[][];

/** The rates for each machine and value, filled in as they come. */
function useRates(planner: Planner, state: State, curve: Curve): Rates {
  const [rates, setRates] = useState<Rates>([]);
  const key = JSON.stringify(state);
  useEffect(() => {
    const asking = new AbortController();
    const { signal } = asking;
    const found: Rates = state.machines.map(() => curve.values.map(() => null));
    setRates(found.map((row) => [...row]));
    const fill = async () => {
      for (const [at, value] of curve.values.entries()) {
        for (const [machine, choice] of state.machines.entries()) {
          const plan = await planner.plan(scenario(curve.change(state, value), choice), { later: true, signal });
          if (signal.aborted) return;
          found[machine]![at] = plan.answer?.numbers.decode_tokens_per_s ?? null;
          setRates(found.map((row) => [...row]));
        }
      }
    };
    // The answer itself comes first.
    const timer = setTimeout(() => void fill(), 600);
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
    legend: { show: rates.length > 1 },
    scales: { x: { time: false, distr: 3, log: 2 }, y: { range: (_: uPlot, __: number, most: number): uPlot.Range.MinMax => [0, (most || 1) * 1.1] } },
    axes: [
      {
        ...axisStyle(),
        label: curve.axis,
        splits: () => curve.values,
        filter: (_: uPlot, splits: number[]) => splits,
        values: (_: uPlot, splits: number[]) => splits.map((it) => (it >= 1024 ? `${it / 1024}k` : String(it))),
      },
      { ...axisStyle(), label: "tok/s", size: 60 },
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
  const words = rates.map((row) => row.map((it, at) => `${curve.values[at]}: ${it === null ? "does not fit" : it.toFixed(1)}`).join(", "));
  return <Plot title={curve.title} words={words.join("; ")} data={data} options={options} />;
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
