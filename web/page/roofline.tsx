// The operators of a plan under the rooflines of its devices.
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import type { DeviceRoof, OperatorPoint, Roofline } from "./planner/answers";
import { axisStyle, colour, Plot } from "./plot";
import { percent, scaled } from "./quantities";

const flops = (value: number) => scaled(value, [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1, "FLOP/s"]]);

/** The colour of a device: CPUs and GPUs as in the picture of the layers. */
const ink = (device: DeviceRoof) => (device.name.startsWith("cpu") ? "--cpu" : "--gpu");

const PHASES = [
  { phase: "prefill", words: "prompt", size: 9, filled: false },
  { phase: "decode", words: "answer", size: 9, filled: true },
];

const roof = (device: DeviceRoof, intensity: number) =>
  Math.min(device.bandwidth_byte_per_s * intensity, device.peak_flop_per_s ?? Infinity);

/** The points of the x axis: those of operators, and where each roof begins, bends and ends. */
function intensities({ devices, points }: Roofline): number[] {
  const own = points.map((it) => it.flop_per_byte);
  const bends = devices.flatMap((it) => (it.peak_flop_per_s === null ? [] : [it.peak_flop_per_s / it.bandwidth_byte_per_s]));
  const [least, most] = [Math.min(...own, ...bends) / 2, Math.max(...own, ...bends) * 2];
  return [...new Set([least, ...own, ...bends, most])].sort((a, b) => a - b);
}

interface Line {
  label: string;
  ink: string;
  values: (number | null)[];
  point?: { size: number; filled: boolean };
}

function lines(roofline: Roofline, at: number[]): Line[] {
  return roofline.devices.flatMap((device) => {
    const roofed: Line = { label: `${device.name}'s roof`, ink: ink(device), values: at.map((it) => roof(device, it)) };
    const marked = PHASES.map(({ phase, words, size, filled }) => {
      const own = roofline.points.filter((it) => it.device === device.name && it.phase === phase);
      const values = at.map((it) => own.find((point) => point.flop_per_byte === it)?.flop_per_s ?? null);
      return { label: `${device.name}, ${words}`, ink: ink(device), values, point: { size, filled } };
    });
    return [roofed, ...marked];
  });
}

/** The powers of ten on an axis. */
const decades = (_: uPlot, __: number, least: number, most: number) => {
  const first = Math.ceil(Math.log10(least) - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(Math.log10(most) + 1e-9) - first + 1) }, (_, at) => 10 ** (first + at));
};

const named = (value: number) => value.toPrecision(2).replace(/e\+/, "e");

function series(line: Line): uPlot.Series {
  const stroke = colour(line.ink);
  const value = (_: uPlot, it: number | null) => (it === null ? "" : flops(it));
  if (line.point === undefined) return { label: line.label, stroke, width: 2, points: { show: false }, value };
  const fill = line.point.filled ? stroke : colour("--card");
  return { label: line.label, stroke, value, paths: () => null, points: { show: true, size: line.point.size, stroke, fill, width: 2 } };
}

function row(point: OperatorPoint, device: DeviceRoof | undefined) {
  const share = device === undefined ? null : point.flop_per_s / roof(device, point.flop_per_byte);
  return (
    <tr>
      <td>{point.phase === "prefill" ? "prompt" : "answer"}</td>
      <td>{point.device}</td>
      <td>{point.operator}</td>
      <td>{named(point.flop_per_byte)}</td>
      <td>{flops(point.flop_per_s)}</td>
      <td>{share === null ? "" : percent(share)}</td>
      <td>{percent(point.share)}</td>
    </tr>
  );
}

export function RooflinePlot({ roofline }: { roofline: Roofline }) {
  const at = useMemo(() => intensities(roofline), [roofline]);
  const drawn = useMemo(() => lines(roofline, at), [roofline]);
  const data = useMemo((): uPlot.AlignedData => [at, ...drawn.map((it) => it.values)], [roofline]);
  const options = () => ({
    height: 260,
    legend: { show: false },
    padding: [null, 24, null, null] as uPlot.Padding,
    scales: { x: { time: false, distr: 3 as const }, y: { distr: 3 as const } },
    axes: [
      { ...axisStyle(), label: "FLOP per byte", splits: decades, values: (_: uPlot, splits: number[]) => splits.map(String) },
      { ...axisStyle(), label: "FLOP/s", size: 70, splits: decades, values: (_: uPlot, splits: number[]) => splits.map((it) => flops(it).replace(/(\.0+)? (.?)FLOP.*/, " $2")) },
    ],
    series: [{ label: "FLOP per byte", value: (_: uPlot, it: number | null) => (it === null ? "" : named(it)) }, ...drawn.map(series)],
  });
  const heaviest = [...roofline.points].sort((a, b) => b.share - a.share);
  const device = (name: string) => roofline.devices.find((it) => it.name === name);
  const words = heaviest.slice(0, 6).map((it) => `${it.operator} on ${it.device} in the ${it.phase} reaches ${flops(it.flop_per_s)}`);
  return (
    <section>
      <h3>Under the roofline</h3>
      <Plot title="What each operator reaches, and the most that its device could" words={words.join("; ")} data={data} options={options} />
      <p class="legend">
        {roofline.devices.map((device) => (
          <span class={device.name.startsWith("cpu") ? "on-cpu" : "on-gpu"}>{device.name}</span>
        ))}
        <small>line: the most that it could; ring: an operator of the prompt; dot: of the answer</small>
      </p>
      <details>
        <summary>Operator by operator</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label="operators under the roofline">
          <table>
            <thead>
              <tr>
                <th scope="col">of the</th>
                <th scope="col">on</th>
                <th scope="col">operator</th>
                <th scope="col">FLOP per byte</th>
                <th scope="col">rate</th>
                <th scope="col">of the roof</th>
                <th scope="col">of its time</th>
              </tr>
            </thead>
            <tbody>{heaviest.map((it) => row(it, device(it.device)))}</tbody>
          </table>
        </div>
      </details>
    </section>
  );
}
