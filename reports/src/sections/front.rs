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
    prefill_chunk: Option<f64>,
    /// The simulated values, by criterion.
    simulated: Vec<Option<f64>>,
    /// The values without contention, by criterion.
    bounds: Vec<Option<f64>>,
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
    times: planner::PhaseTimes,
    energy_per_token: Option<hwprofiles::Joules>,
    cost_per_token: Option<hwprofiles::Dollars>,
}

impl CriteriaRecord {
    fn value(&self, criterion: &str) -> Option<f64> {
        match criterion {
            "ttft" => Some(self.times.ttft.get()),
            "tpot" => self.times.tpot.map(Seconds::get),
            "energy" => self.energy_per_token.map(|it| it.get()),
            _ => self.cost_per_token.map(|it| it.get()),
        }
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
            prefill_chunk: Some(point.prefill_chunk as f64),
            simulated: values(&point.simulated),
            bounds: values(&point.bound),
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
            text.parse().ok().filter(|it: &f64| it.is_finite())
        };
        let row = |row: usize| {
            let text = |name: &str| table.index(name).map(|it| table.text(it, row)).unwrap_or_default();
            let values = |prefix: &str| {
                known.iter().map(|(_, column)| number(&format!("{prefix}{column}"), row)).collect()
            };
            FrontRow {
                placement: text("placement"),
                prefill_chunk: number("prefill_chunk", row),
                simulated: values(""),
                bounds: values("bound_"),
                proven: number("proven", row),
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
                "{}. By the solver’s estimates none is worse than another in every criterion. Simulated \
                 with contention, {beaten} {} beaten by another.",
                counted(self.points.len(), "placement"),
                if beaten == 1 { "is" } else { "are" }
            ),
            blocks,
        }
    }

    fn chart(&self, sides: [usize; 2]) -> Chart {
        let scale = |side: usize| {
            let criterion = self.criteria[side].as_str();
            AxisScale::tight(&criterion_name(criterion), if is_time(criterion) { tick_label } else { plain })
        };
        let title = format!(
            "{} against {}",
            criterion_name(&self.criteria[sides[1]]),
            criterion_name(&self.criteria[sides[0]])
        );
        let mut chart = Chart::new(&title, sides.map(scale));
        for (name, beaten) in [("on the front", false), ("beaten once simulated", true)] {
            let points = self.points.iter().filter(|it| it.beaten == beaten).filter_map(|it| {
                let values = self.criteria.iter().zip(&it.simulated);
                let values: Vec<_> =
                    values.map(|(name, value)| format!("{name} {}", written(name, *value))).collect();
                let chunk = it.prefill_chunk.map_or("–".to_owned(), plain);
                let hover = format!("{}: {}, chunk {chunk}", it.placement, values.join(", "));
                let [Some(x), Some(y)] = sides.map(|side| it.simulated[side]) else { return None };
                Some(PlotPoint { at: [x, y], hover })
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
            let values = [&it.simulated, &it.bounds].into_iter().flat_map(|it| self.criteria.iter().zip(it));
            let values = values.map(|(name, value)| written(name, *value));
            let proven = it.proven.map_or("–".to_owned(), percent);
            let name = TableCell { text: it.placement.clone(), unusual: it.beaten };
            let cells =
                values.chain([it.prefill_chunk.map_or("–".to_owned(), plain), proven]).map(TableCell::from);
            [name].into_iter().chain(cells).collect()
        };
        Table {
            label: "The points of the front".to_owned(),
            caption: "Simulated values, and bounds without contention. ‘!’ marks points that another \
                      simulated point beats. Proven: no placement within the limits is below this share \
                      of the value."
                .to_owned(),
            columns: [TableColumn::name("placement, in decode")]
                .into_iter()
                .chain(numbers.map(|it| TableColumn::number(&it)))
                .collect(),
            rows: self.points.iter().map(row).collect(),
        }
    }
}

fn is_time(criterion: &str) -> bool {
    matches!(criterion, "ttft" | "tpot")
}

fn criterion_name(criterion: &str) -> String {
    match criterion {
        "ttft" => "time to first token".to_owned(),
        "tpot" => "time per output token".to_owned(),
        "energy" => "J per output token".to_owned(),
        "cost" => "USD per output token".to_owned(),
        other => other.to_owned(),
    }
}

fn written(criterion: &str, value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if is_time(criterion) => duration(Seconds::new(value)),
        Some(value) => plain(value),
    }
}
