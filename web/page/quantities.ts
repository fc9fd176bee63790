// Numbers as people read them.

export function scaled(value: number, units: [number, string][]): string {
  const [size, unit] = units.find(([size]) => value >= size) ?? units[units.length - 1]!;
  const shown = value / size;
  return `${shown >= 100 ? shown.toFixed(0) : shown >= 10 ? shown.toFixed(1) : shown.toFixed(2)} ${unit}`;
}

export const seconds = (value: number) =>
  scaled(value, [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);

export const bytes = (value: number) =>
  value === 0 ? "0" : scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);

export const count = (value: number) =>
  value >= 1e6 ? scaled(value, [[1e12, "T"], [1e9, "B"], [1e6, "M"]]) : value.toLocaleString("en");

export const rate = (value: number) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

export const percent = (share: number) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
