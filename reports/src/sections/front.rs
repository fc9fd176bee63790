//! The section of a Pareto front.

use crate::numbers::format::counted;
use crate::numbers::format::{duration, percent, plain};
use crate::page::block::{PageBlock, Plot, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::chart::{AxisScale, Chart, PlotPoint, PlotSeries};
use crate::plots::legend::tick_label;
use crate::results::data_table::DataTable;
use crate::results::error::ReportError;
use hwprofiles::Seconds;
use serde::Deserialize;
use std::path::Path;

/// The output of `fulcrum plan --front`, from CSV or JSON.
#[derive(Debug, Clone)]
pub(crate) struct FrontFile {
    criteria: Vec<String>,
    points: Vec<FrontRow>,
}

#[derive(Debug, Clone)]
struct FrontRow {
    placement: String,
    prefill_chunk: f64,
    /// The simulated values and the bounds, by criterion.
    values: [Vec<f64>; 2],
    proven: Option<f64>,
    /// Whether another simulated point is nowhere worse and somewhere better.
    beaten: bool,
}

/// The part of the JSON form that is shown.
#[derive(Deserialize)]
struct FrontRecord {
    criteria: Vec<String>,
    points: Vec<PointRecord>,
}

#[derive(Deserialize)]
struct PointRecord {
    placement: String,
    prefill_chunk: u64,
    bound: CriteriaRecord,
    simulated: CriteriaRecord,
    proven: Option<f64>,
    beaten: bool,
}

#[derive(Deserialize)]
struct CriteriaRecord {
    times: planner::Times,
    energy_per_token: Option<hwprofiles::Joules>,
    cost_per_token: Option<hwprofiles::Dollars>,
}

impl CriteriaRecord {
    fn value(&self, criterion: &str) -> f64 {
        let value = match criterion {
            "ttft" => Some(self.times.ttft.get()),
            "tpot" => self.times.tpot.map(Seconds::get),
            "energy" => self.energy_per_token.map(|it| it.get()),
            _ => self.cost_per_token.map(|it| it.get()),
        };
        value.unwrap_or(f64::NAN)
    }
}

/// The criteria and their columns in CSV.
const COLUMNS: [(&str, &str); 4] = [
    ("ttft", "ttft_s"),
    ("tpot", "tpot_s"),
    ("energy", "energy_J_per_token"),
    ("cost", "cost_USD_per_token"),
];

impl FrontFile {
    pub(crate) fn from_json(text: &str, path: &Path) -> Result<Self, ReportError> {
        let record: FrontRecord = serde_json::from_str(text)
            .map_err(|source| ReportError::Parse { path: path.to_owned(), source })?;
        let values = |taken: &CriteriaRecord| record.criteria.iter().map(|it| taken.value(it)).collect();
        let row = |point: &PointRecord| FrontRow {
            placement: point.placement.clone(),
            prefill_chunk: point.prefill_chunk as f64,
            values: [&point.simulated, &point.bound].map(values),
            proven: point.proven,
            beaten: point.beaten,
        };
        let points = record.points.iter().map(row).collect();
        Ok(Self { points, criteria: record.criteria })
    }

    pub(crate) fn from_table(table: &DataTable) -> Self {
        let known = COLUMNS.into_iter().filter(|(_, column)| table.index(column).is_some());
        let known: Vec<_> = known.collect();
        let number = |name: &str, row: usize| {
            let text = table.index(name).map(|column| table.text(column, row)).unwrap_or_default();
            text.parse().unwrap_or(f64::NAN)
        };
        let row = |row: usize| {
            let text = |name: &str| table.index(name).map(|it| table.text(it, row)).unwrap_or_default();
            let values = ["", "bound_"].map(|prefix| {
                known.iter().map(|(_, column)| number(&format!("{prefix}{column}"), row)).collect()
            });
            FrontRow {
                placement: text("placement"),
                prefill_chunk: number("prefill_chunk", row),
                values,
                proven: Some(number("proven", row)).filter(|it| it.is_finite()),
                beaten: text("beaten") == "true",
            }
        };
        let criteria = known.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { criteria, points: (0..table.rows).map(row).collect() }
    }

    pub(crate) fn section(&self) -> PageSection {
        let beaten = self.points.iter().filter(|it| it.beaten).count();
        let mut blocks = Vec::new();
        if self.points.is_empty() {
            blocks.push(PageBlock::Note("There is no point on this front.".to_owned()));
        }
        // Plots each criterion against the one before it.
        let pairs = (1..self.criteria.len()).map(|up| [up - 1, up]);
        let plots = pairs.map(|[across, up]| {
            let name = format!("front-{}-{}", self.criteria[across], self.criteria[up]);
            Plot::fitting(name, self.chart([across, up]).draw())
        });
        blocks.push(PageBlock::Plots(plots.collect()));
        blocks.push(PageBlock::Table(self.table()));
        PageSection {
            title: format!("What can be traded off: {}", self.criteria.join(", ")),
            lead: format!(
                "{}, of which none was better in every criterion as the solver compares; {beaten} of them {} beaten by another once \
                 simulated with contention.",
                counted(self.points.len(), "placement"),
                if beaten == 1 { "is" } else { "are" }
            ),
            blocks,
        }
    }

    fn chart(&self, sides: [usize; 2]) -> Chart {
        let scale = |side: usize| {
            let criterion = self.criteria[side].as_str();
            AxisScale::tight(&words(criterion), if is_time(criterion) { tick_label } else { plain })
        };
        let title =
            format!("{} against {}", words(&self.criteria[sides[1]]), words(&self.criteria[sides[0]]));
        let mut chart = Chart::new(&title, sides.map(scale));
        for (name, beaten) in [("on the front", false), ("beaten once simulated", true)] {
            let points = self.points.iter().filter(|it| it.beaten == beaten).map(|it| {
                let values = self.criteria.iter().zip(&it.values[0]);
                let values: Vec<_> =
                    values.map(|(name, value)| format!("{name} {}", written(name, *value))).collect();
                let hover = format!("{}: {}, chunk {}", it.placement, values.join(", "), it.prefill_chunk);
                PlotPoint { at: sides.map(|side| it.values[0][side]), hover }
            });
            let mut points: Vec<_> = points.collect();
            points.sort_by(|a, b| a.at[0].total_cmp(&b.at[0]));
            // With three criteria, the points do not form a line in two of them.
            let line = !beaten && self.criteria.len() == 2;
            if !points.is_empty() {
                chart.series.push(PlotSeries { name: name.to_owned(), points, line, radius: 5.5 });
            }
        }
        chart
    }

    fn table(&self) -> Table {
        let bounds = self.criteria.iter().map(|it| format!("{it}, bound"));
        let numbers =
            self.criteria.iter().cloned().chain(bounds).chain(["prefill chunk", "proven"].map(str::to_owned));
        let row = |it: &FrontRow| {
            let values = it.values.iter().flat_map(|values| self.criteria.iter().zip(values));
            let values = values.map(|(name, value)| written(name, *value));
            let proven = it.proven.map_or("–".to_owned(), percent);
            let name = TableCell { text: it.placement.clone(), off: it.beaten };
            let cells = values.chain([plain(it.prefill_chunk), proven]).map(TableCell::from);
            [name].into_iter().chain(cells).collect()
        };
        Table {
            label: "The points of the front".to_owned(),
            caption: "Simulated, and as bounds without contention; ‘!’ where another point, simulated, is nowhere worse and somewhere \
                      better. Proven: the share of its value that nothing within its limits goes below."
                .to_owned(),
            columns: [TableColumn::name("placement, in decode")].into_iter().chain(numbers.map(|it| TableColumn::number(&it))).collect(),
            rows: self.points.iter().map(row).collect(),
        }
    }
}

fn is_time(criterion: &str) -> bool {
    matches!(criterion, "ttft" | "tpot")
}

fn words(criterion: &str) -> String {
    match criterion {
        "ttft" => "time to first token".to_owned(),
        "tpot" => "time per output token".to_owned(),
        "energy" => "J per output token".to_owned(),
        "cost" => "USD per output token".to_owned(),
        other => other.to_owned(),
    }
}

fn written(criterion: &str, value: f64) -> String {
    match () {
        () if !value.is_finite() => "–".to_owned(),
        () if is_time(criterion) => duration(Seconds::new(value)),
        () => plain(value),
    }
}
