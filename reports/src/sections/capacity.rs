//! The section of a capacity file, the output of `fulcrum capacity --json`.

use crate::numbers::format::counted;
use crate::numbers::format::{percent, plain, whole_percent};
use crate::page::block::{NumberTile, PageBlock, Plot, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::chart::{AxisScale, Chart, GuideCourse, GuideLine, PlotPoint, PlotSeries};
use crate::plots::drawing::marks::Drawing;
use crate::plots::legend::tick_label;
use crate::plots::tornado::{self, TornadoBar};
use crate::results::error::ReportError;
use serde::{Deserialize, Deserializer};
use std::path::Path;

/// The version of the file's form that is read.
const VERSION: u32 = 2;
/// Costs are given for this many tokens.
const TOKENS: f64 = 1e6;

/// The part of the file that is shown. Other keys are ignored.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CapacityFile {
    capacity: u32,
    /// The version of the program that wrote it.
    #[serde(default)]
    version: String,
    model: String,
    #[serde(default, rename = "asked")]
    question: Vec<String>,
    #[serde(default)]
    answer: Vec<String>,
    unit: String,
    load: f64,
    machines: Vec<CandidateRecord>,
    #[serde(default)]
    figures: Vec<FigureRecord>,
}

#[derive(Debug, Clone, Deserialize)]
struct FigureRecord {
    #[serde(rename = "what")]
    name: String,
    value: String,
    source: String,
}

#[derive(Debug, Clone, Deserialize)]
struct CandidateRecord {
    name: String,
    #[serde(default)]
    plan: String,
    /// Why it meets the limits at no load.
    unmet: Option<String>,
    largest_load: Option<BandRecord>,
    machines: Option<BandRecord>,
    utilization: Option<f64>,
    energy_per_token_j: Option<f64>,
    cost_per_token: Option<BandRecord>,
    total_cost: Option<BandRecord>,
    #[serde(default)]
    bottlenecks: Vec<BottleneckRecord>,
    #[serde(default)]
    sensitivity: Vec<SensitivityRow>,
    #[serde(default)]
    curve: Vec<LoadRecord>,
}

/// A number, with the results at the slow and the fast end of the machine's band.
#[derive(Debug, Clone, Copy, Deserialize)]
struct BandRecord {
    value: f64,
    #[serde(deserialize_with = "or_infinite")]
    slow: f64,
    #[serde(deserialize_with = "or_infinite")]
    fast: f64,
}

/// Reads null as infinity. A machine with slow rates may meet the limits at no load; the number of
/// machines is then infinite, which JSON cannot write.
fn or_infinite<'de, D: Deserializer<'de>>(reader: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or(f64::INFINITY))
}

#[derive(Debug, Clone, Deserialize)]
struct BottleneckRecord {
    #[serde(rename = "what")]
    resource: String,
    share: f64,
}

/// Dollars for a token with one figure lower and higher.
#[derive(Debug, Clone, Deserialize)]
struct SensitivityRow {
    #[serde(rename = "what")]
    figure: String,
    lower: f64,
    higher: f64,
}

/// The value that a chart shows for a load.
type Measure = fn(&LoadRecord) -> Option<f64>;

/// The results at one load.
#[derive(Debug, Clone, Deserialize)]
struct LoadRecord {
    load: f64,
    slo_attainment: f64,
    ttft_p99_s: Option<f64>,
    tpot_p99_s: Option<f64>,
}

impl BandRecord {
    fn written(self, format: impl Fn(f64) -> String) -> String {
        let (low, high) = (self.slow.min(self.fast), self.slow.max(self.fast));
        match low < high {
            true => format!("{} ({} to {})", format(self.value), format(low), format(high)),
            false => format(self.value),
        }
    }

    fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, slow: self.slow * factor, fast: self.fast * factor }
    }
}

impl CapacityFile {
    pub(crate) fn read(text: &str, path: &Path) -> Result<Self, ReportError> {
        let file: Self = serde_json::from_str(text)
            .map_err(|source| ReportError::Parse { path: path.to_owned(), source })?;
        match file.capacity {
            VERSION => Ok(file),
            other => Err(ReportError::Unknown {
                path: path.to_owned(),
                key: "capacity",
                value: other.to_string(),
                wanted: VERSION.to_string(),
            }),
        }
    }

    /// The program that made it and the version of the form.
    pub(crate) fn made_by(&self) -> String {
        format!("fulcrum {}, form {}", self.version, self.capacity)
    }

    pub(crate) fn section(&self) -> PageSection {
        let mut blocks: Vec<_> = self.question.iter().map(|line| PageBlock::Text(line.clone())).collect();
        let (first, rest) = self.answer.split_at(self.answer.len().min(1));
        blocks.extend(first.iter().map(|line| PageBlock::Note(line.clone())));
        blocks.extend(rest.iter().map(|line| PageBlock::Text(line.clone())));
        let tiles: Vec<_> = self.machines.iter().map(tile).collect();
        match tiles.is_empty() {
            true => blocks.push(PageBlock::Note("No machine was compared.".to_owned())),
            false => blocks.push(PageBlock::Tiles(tiles)),
        }
        blocks.push(PageBlock::Table(self.table()));
        let curves = self.curves();
        if !curves.is_empty() {
            blocks.push(PageBlock::Heading("Attainment and latency by load".to_owned()));
            blocks.push(PageBlock::Plots(curves));
        }
        let tornados = self.machines.iter().enumerate();
        let tornados: Vec<_> = tornados
            .filter_map(|(index, it)| Some(Plot::fitting(format!("tornado-{index}"), tornado(it)?)))
            .collect();
        if !tornados.is_empty() {
            blocks.push(PageBlock::Heading("Sensitivity of the cost of a million output tokens".to_owned()));
            blocks.push(PageBlock::Plots(tornados));
        }
        blocks.push(PageBlock::Heading("Prices and rates".to_owned()));
        blocks.push(PageBlock::Table(self.figures()));
        PageSection {
            title: format!("{}: which machine", self.model),
            lead: format!(
                "{} for {} {}.",
                counted(self.machines.len(), "candidate"),
                plain(self.load),
                self.unit
            ),
            blocks,
        }
    }

    fn table(&self) -> Table {
        let row = |it: &CandidateRecord| {
            let banded = |it: Option<BandRecord>| it.map_or("–".to_owned(), |it| it.written(plain));
            let number = |it: Option<f64>| it.map_or("–".to_owned(), plain);
            let bottleneck = it
                .bottlenecks
                .first()
                .map_or(String::new(), |it| format!("{} {}", it.resource, percent(it.share)));
            let cells = [
                it.name.clone(),
                banded(it.largest_load),
                banded(it.machines),
                it.utilization.map_or("–".to_owned(), percent),
                banded(it.cost_per_token.map(|it| it.times(TOKENS))),
                banded(it.total_cost),
                number(it.energy_per_token_j),
                bottleneck,
                it.unmet.clone().unwrap_or_else(|| it.plan.clone()),
            ];
            cells.map(TableCell::from).to_vec()
        };
        let largest = format!("{} of one", self.unit);
        let numbers = [
            largest.as_str(),
            "machines",
            "utilisation",
            "USD per million tokens",
            "total USD",
            "J per token",
        ];
        let columns = [TableColumn::name("machine")].into_iter().chain(numbers.map(TableColumn::number));
        Table {
            label: "The candidates".to_owned(),
            caption: "In brackets: the results with every rate of the machine at the slow and the fast \
                      end of its 80 % band."
                .to_owned(),
            columns: columns
                .chain([TableColumn::text("bottleneck"), TableColumn::wide("plan, or why not")])
                .collect(),
            rows: self.machines.iter().map(row).collect(),
        }
    }

    /// Charts of attainment and latencies against the load of one machine.
    fn curves(&self) -> Vec<Plot> {
        let load = || AxisScale::linear(&format!("{} of one machine", self.unit), plain);
        let measures: [(&str, &str, AxisScale, Measure); 3] = [
            ("attainment", "Requests within the limits", AxisScale::linear("share", whole_percent), |it| {
                Some(it.slo_attainment)
            }),
            ("ttft", "TTFT, 99th percentile", AxisScale::logarithmic("time", tick_label), |it| it.ttft_p99_s),
            ("tpot", "TPOT, 99th percentile", AxisScale::logarithmic("time", tick_label), |it| it.tpot_p99_s),
        ];
        let plots = measures.into_iter().map(|(name, title, scale, measure)| {
            let mut chart = Chart::new(title, [load(), scale]);
            for machine in self.machines.iter().filter(|it| !it.curve.is_empty()) {
                let points = machine.curve.iter().filter_map(|at| {
                    let value = measure(at)?;
                    let hover =
                        format!("{}: {} {}, {}", machine.name, plain(at.load), self.unit, plain(value));
                    Some(PlotPoint { at: [at.load, value], hover })
                });
                let (name, points) = (machine.name.clone(), points.collect());
                chart.series.push(PlotSeries { name, points, line: true, radius: 4.0 });
                if let Some(most) = machine.largest_load {
                    let course = GuideCourse::Vertical(most.value);
                    chart.guides.push(GuideLine { course, name: machine.name.clone(), counts: false });
                }
            }
            (
                chart.series.iter().any(|it| !it.points.is_empty()),
                Plot::fitting(format!("load-{name}"), chart.draw()),
            )
        });
        plots.filter(|(drawn, _)| *drawn).map(|(_, plot)| plot).collect()
    }

    fn figures(&self) -> Table {
        let row = |it: &FigureRecord| {
            [&it.name, &it.value, &it.source].map(|it| TableCell::from(it.as_str())).to_vec()
        };
        Table {
            label: "Prices and rates in use".to_owned(),
            caption: "Prices and rates with their sources.".to_owned(),
            columns: [TableColumn::name("figure"), TableColumn::text("value"), TableColumn::wide("source")]
                .to_vec(),
            rows: self.figures.iter().map(row).collect(),
        }
    }
}

fn tile(it: &CandidateRecord) -> NumberTile {
    let machines = |machines: BandRecord| format!("{} machines", machines.written(plain));
    NumberTile {
        name: format!("{}, a million output tokens", it.name),
        value: it.cost_per_token.map_or("–".to_owned(), |cost| format!("{:.2} USD", cost.value * TOKENS)),
        lines: it.machines.map(machines).into_iter().chain(it.unmet.clone()).collect(),
    }
}

/// The effect of each figure on the cost; `None` without figures or without a cost.
fn tornado(it: &CandidateRecord) -> Option<Drawing> {
    let base = it.cost_per_token.filter(|_| !it.sensitivity.is_empty())?.value * TOKENS;
    let bar = |row: &SensitivityRow| TornadoBar {
        name: row.figure.clone(),
        values: ["lower".to_owned(), "higher".to_owned()],
        answers: [row.lower * TOKENS, row.higher * TOKENS],
    };
    let bars: Vec<_> = it.sensitivity.iter().map(bar).collect();
    let title = format!("{}: USD for a million output tokens", it.name);
    Some(tornado::draw(&title, base, &bars, plain))
}
