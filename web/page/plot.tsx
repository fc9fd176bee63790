// A plot that follows the width of its box and the colours of the page.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** What the axes of a plot have in common. */
export function axisStyle(): uPlot.Axis {
  const [ink, line] = [colour("--ink"), colour("--line")];
  return { stroke: ink, grid: { stroke: line }, ticks: { stroke: line } };
}

/** A plot with its title; `words` say the same to who cannot see it. It is drawn anew when `data` changes. */
export function Plot(props: { title: string; words: string; data: uPlot.AlignedData; options: () => Omit<uPlot.Options, "width"> }) {
  const { title, words, data } = props;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const parent = box.current;
    if (parent === null || data[0].length === 0) return;
    const draw = () => new uPlot({ ...props.options(), width: parent.clientWidth }, data, parent);
    let plot = draw();
    const redraw = () => {
      plot.destroy();
      plot = draw();
    };
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("resize", redraw);
    scheme.addEventListener("change", redraw);
    return () => {
      removeEventListener("resize", redraw);
      scheme.removeEventListener("change", redraw);
      plot.destroy();
    };
  }, [data]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div ref={box} role="img" aria-label={`${title}: ${words}`} />
    </figure>
  );
}
