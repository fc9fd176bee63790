//! The sections of served requests: the summary, request by request, and over time.

use crate::numbers::format::counted;
use crate::numbers::format::{duration, percent, plain, whole_percent};
use crate::numbers::statistics::percentile;
use crate::page::block::{NumberTile, PageBlock, Plot, Table, TableCell, TableColumn};
use crate::page::explorer::Explorer;
use crate::page::section::PageSection;
use crate::plots::chart::{AxisScale, Chart, PlotPoint, PlotSeries, TickFormat};
use crate::plots::legend::tick_label;
use crate::results::data_table::DataTable;
use crate::results::error::ReportError;
use hwprofiles::Seconds;
use serde_json::Value;
use std::path::Path;

/// The latencies of a table: column and name.
const LATENCIES: [(&str, &str); 4] = [
    ("ttft_s", "TTFT, time to first token"),
    ("tpot_s", "TPOT, time per output token"),
    ("itl_s", "ITL, time between tokens"),
    ("e2el_s", "E2EL, end-to-end latency"),
];
/// A line has at most this many points.
const MOST_POINTS: usize = 400;

/// The JSON of `fulcrum sim --json`. It is shown by its keys, without a type of its own.
#[derive(Debug, Clone)]
pub(crate) struct ServingSummary(Value);

impl ServingSummary {
    pub(crate) fn read(text: &str, path: &Path) -> Result<Self, ReportError> {
        let value = serde_json::from_str(text);
        value.map(Self).map_err(|source| ReportError::Parse { path: path.to_owned(), source })
    }

    fn number(&self, pointer: &str) -> Option<f64> {
        self.0.pointer(pointer)?.as_f64()
    }

    /// The section of arriving requests.
    pub(crate) fn served(&self) -> PageSection {
        let count = |key: &str| self.number(&format!("/requests/{key}")).unwrap_or(0.0);
        let mut tiles: Vec<_> = LATENCIES
            .iter()
            .filter_map(|(key, name)| {
                let p50 = self.number(&format!("/{key}/p50"))?;
                let tail = ["p90", "p99"].into_iter().filter_map(|it| {
                    Some(format!("{it} {}", duration(Seconds::new(self.number(&format!("/{key}/{it}"))?))))
                });
                let value = duration(Seconds::new(p50));
                Some(NumberTile {
                    name: format!("{name}: median"),
                    value,
                    lines: vec![tail.collect::<Vec<_>>().join(", ")],
                })
            })
            .collect();
        let kept = self.number("/slo_attainment").map(percent);
        tiles.extend(kept.map(|it| NumberTile::new("Requests within the limits", it)));
        let mut blocks = vec![];
        if count("completed") == 0.0 {
            blocks.push(PageBlock::Note("No request was completed.".to_owned()));
        }
        blocks.push(PageBlock::Tiles(tiles));
        blocks.push(PageBlock::Table(self.listing()));
        PageSection {
            title: "Served requests".to_owned(),
            lead: format!(
                "{} of {} requests completed in {}.",
                plain(count("completed")),
                plain(["completed", "running", "queued", "rejected"].into_iter().map(count).sum()),
                duration(Seconds::new(self.number("/duration_s").unwrap_or(0.0)))
            ),
            blocks,
        }
    }

    /// The section of a static batch.
    pub(crate) fn batch(&self) -> PageSection {
        let tiles = LATENCIES.iter().filter_map(|(key, name)| {
            Some(NumberTile::new(name, duration(Seconds::new(self.number(&format!("/{key}"))?))))
        });
        PageSection {
            title: "A static batch".to_owned(),
            lead: "Times and rates as simulated.".to_owned(),
            blocks: vec![PageBlock::Tiles(tiles.collect()), PageBlock::Table(self.listing())],
        }
    }

    /// Every number and text, by its path.
    fn listing(&self) -> Table {
        let mut rows = Vec::new();
        list(&self.0, String::new(), &mut rows);
        Table {
            label: "All numbers".to_owned(),
            caption: "All values of the file. Names that end in _s are in seconds, names in _j in joules."
                .to_owned(),
            columns: vec![TableColumn::name("quantity"), TableColumn::number("value")],
            rows: rows.into_iter().map(|row| row.map(TableCell::from).to_vec()).collect(),
        }
    }
}

fn list(value: &Value, path: String, rows: &mut Vec<[String; 2]>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let path = if path.is_empty() { key.clone() } else { format!("{path} / {key}") };
                list(value, path, rows);
            }
        }
        Value::Number(number) => rows.push([path, number.as_f64().map_or_else(|| number.to_string(), plain)]),
        Value::String(text) => rows.push([path, text.clone()]),
        Value::Null => rows.push([path, "–".to_owned()]),
        other => rows.push([path, other.to_string()]),
    }
}

/// The section of a table with a line for each request.
pub(crate) fn requests(table: &DataTable) -> PageSection {
    let known: Vec<_> =
        LATENCIES.iter().filter_map(|(key, name)| Some((*key, *name, sorted(table.numbers(key)?)))).collect();
    let mut blocks = vec![];
    if table.rows == 0 {
        blocks.push(PageBlock::Note("There is no request in this table.".to_owned()));
    }
    let plots = known
        .iter()
        .map(|(key, name, values)| Plot::fitting(format!("cdf-{key}"), distribution(name, values)));
    blocks.push(PageBlock::Plots(plots.collect()));
    let shares = [50.0, 90.0, 95.0, 99.0, 100.0];
    let row = |(_, name, values): &(&str, &str, Vec<f64>)| {
        let cells = shares.iter().map(|share| {
            let value = percentile(values, *share);
            value.map_or("–".to_owned(), |it| duration(Seconds::new(it)))
        });
        [(*name).to_owned()].into_iter().chain(cells).map(TableCell::from).collect()
    };
    let numbers = ["median", "p90", "p95", "p99", "longest"].map(TableColumn::number);
    blocks.push(PageBlock::Table(Table {
        label: "Percentiles".to_owned(),
        caption: "Percentiles by nearest rank.".to_owned(),
        columns: [TableColumn::name("latency")].into_iter().chain(numbers).collect(),
        rows: known.iter().map(row).collect(),
    }));
    blocks.extend(explorer("Requests", table, &["preemptions"], ["arrival_s", "ttft_s", "prompt_tokens"]));
    PageSection {
        title: "Request by request".to_owned(),
        lead: format!("{}.", counted(table.rows, "request")),
        blocks,
    }
}

/// The section of a table with a line for each interval of time.
pub(crate) fn series(table: &DataTable) -> PageSection {
    let start = table.numbers("start_s").unwrap_or(&[]);
    let shown: [(&str, &str, TickFormat); 6] = [
        ("utilization", "Share of time spent computing", whole_percent),
        ("mean_running", "Running requests", plain),
        ("mean_waiting", "Waiting requests", plain),
        ("prompt_tokens_per_s", "Prompt tokens per second", plain),
        ("output_tokens_per_s", "Output tokens per second", plain),
        ("least_free_blocks", "Fewest free blocks of KV cache", plain),
    ];
    let plots = shown.into_iter().filter_map(|(key, title, tick)| {
        let values = table.numbers(key)?;
        let mut chart =
            Chart::new(title, [AxisScale::linear("time", tick_label), AxisScale::linear("", tick)]);
        let points = thinned(start.len().min(values.len())).filter_map(|row| {
            let (time, value) = (start[row]?, values[row]?);
            let hover = format!("{}: {}", duration(Seconds::new(time)), tick(value));
            Some(PlotPoint { at: [time, value], hover })
        });
        chart.series.push(PlotSeries {
            name: key.to_owned(),
            points: points.collect(),
            line: true,
            radius: 0.0,
        });
        Some(Plot::fitting(key, chart.draw()))
    });
    let mut blocks = vec![PageBlock::Plots(plots.collect())];
    if table.rows == 0 {
        blocks.insert(0, PageBlock::Note("There is no time interval in this table.".to_owned()));
    }
    blocks.extend(explorer("Time intervals", table, &[], ["start_s", "utilization", "mean_running"]));
    PageSection {
        title: "Over time".to_owned(),
        lead: format!("{}.", counted(table.rows, "time interval")),
        blocks,
    }
}

fn explorer(label: &str, table: &DataTable, keys: &[&str], [x, y, colour]: [&str; 3]) -> Vec<PageBlock> {
    if table.rows == 0 {
        return vec![];
    }
    let explorer = Explorer::new(label, table, keys, [Some(x), Some(y), Some(colour)]);
    vec![PageBlock::Heading("Explore".to_owned()), PageBlock::Explorer(Box::new(explorer))]
}

fn sorted(values: &[Option<f64>]) -> Vec<f64> {
    let mut values: Vec<f64> = values.iter().copied().flatten().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The indices of all rows, or of evenly spread ones if there are too many, including the first and
/// the last.
fn thinned(rows: usize) -> impl Iterator<Item = usize> {
    let points = rows.min(MOST_POINTS);
    (0..points).map(move |index| if points < 2 { index } else { index * (rows - 1) / (points - 1) })
}

/// The cumulative distribution of `values`, which are ascending.
fn distribution(name: &str, values: &[f64]) -> crate::plots::drawing::marks::Drawing {
    let scales =
        [AxisScale::logarithmic("time", tick_label), AxisScale::linear("share of requests", whole_percent)];
    let mut chart = Chart::new(name, scales);
    let points = thinned(values.len()).map(|row| {
        let share = (row + 1) as f64 / values.len() as f64;
        let hover =
            format!("{} of requests: at most {}", percent(share), duration(Seconds::new(values[row])));
        PlotPoint { at: [values[row], share], hover }
    });
    chart.series.push(PlotSeries {
        name: name.to_owned(),
        points: points.collect(),
        line: true,
        radius: 0.0,
    });
    chart.draw()
}
