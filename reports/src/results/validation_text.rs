//! Validations and comparisons as text for a terminal (at most 80 columns), as Markdown and as CSV.

use crate::numbers::format::{duration, percent, signed_percent};
use crate::numbers::pair::Pair;
use crate::numbers::text::{csv_text, markdown, shortened};
use crate::results::comparison::Comparison;
use crate::results::configuration::{Configuration, DraftOutcome};
use crate::results::rule_comparison::rule_comparison_text;
use crate::results::validation::{ERROR_BAND, ErrorSummary, Validation};
use hwprofiles::Seconds;

/// The width of the column of names in a text table.
const NAME_WIDTH: usize = 25;

impl Validation {
    /// For a terminal: one line per configuration, then the summary.
    pub fn to_text(&self) -> String {
        let mut text = format!("{:NAME_WIDTH$} {:>18}  {:>26}\n", "", "TTFT", "TPOT");
        let columns = format!("{:>9} {:>8} {:>7}", "predicted", "measured", "error");
        text += &format!("{:NAME_WIDTH$} {columns}  {columns}\n", "configuration");
        for it in &self.configurations {
            let cells = |pair: Option<Pair>| cells(pair).unwrap_or_else(|| ["–"; 3].map(str::to_owned));
            let [[p, m, e], [q, n, f]] = [cells(Some(it.ttft())), cells(it.tpot())];
            let name = shortened(&it.label.name, NAME_WIDTH);
            text += &format!("{name:NAME_WIDTH$} {p:>9} {m:>8} {e:>7}  {q:>9} {n:>8} {f:>7}\n");
        }
        let drafted = self.configurations.iter().filter_map(|it| Some((it, draft_lines(it)?)));
        for (it, lines) in drafted {
            text += &format!("\n{}\n{lines}", shortened(&it.label.name, NAME_WIDTH));
        }
        for (metric, errors) in self.metrics() {
            let worst = shortened(&errors.worst_name, NAME_WIDTH);
            text += &format!("\n{metric} |error|: {}\n", summary_line(&errors));
            text += &format!("  {}; worst: {worst}\n", within_line(&errors));
        }
        text + &rule_comparison_text(&self.rule_comparisons())
    }

    /// For a document: a Markdown table, with the shapes and the spread of the repeats.
    pub fn to_markdown(&self) -> String {
        let mut text =
            "| configuration | batch | prompt | output | TTFT predicted | measured | spread | error \
                        | TPOT predicted | measured | spread | error |\n\
                        |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
                .to_owned();
        for it in &self.configurations {
            let label = &it.label;
            let (name, shape) =
                (markdown(&label.name), [label.batch, label.prompt_tokens, label.output_tokens]);
            text += &format!("| {name} | {} |", shape.map(|n| n.to_string()).join(" | "));
            for (pair, spread) in [(Some(it.ttft()), it.ttft_spread()), (it.tpot(), it.tpot_spread())] {
                let spread = spread.map_or("–".to_owned(), percent);
                text += &match cells(pair) {
                    Some([p, m, e]) => format!(" {p} | {m} | {spread} | {e} |"),
                    None => " – | – | – | – |".to_owned(),
                };
            }
            text.push('\n');
        }
        text.push('\n');
        for (metric, errors) in self.metrics() {
            let (worst, within) = (markdown(&errors.worst_name), within_line(&errors));
            text += &format!("- {metric}, |error|: {} ({worst}); {within}\n", summary_line(&errors));
        }
        text
    }

    /// For a spreadsheet: one row per configuration, durations in seconds, errors and spreads as
    /// ratios.
    pub fn to_csv(&self) -> String {
        let header = "name placement batch prompt_tokens output_tokens repeats \
                      ttft_s_predicted ttft_s_measured ttft_spread ttft_error \
                      tpot_s_predicted tpot_s_measured tpot_spread tpot_error";
        let rows = self.configurations.iter().map(|it| {
            let label = &it.label;
            let shape = [label.batch, label.prompt_tokens, label.output_tokens, it.runs.len() as u64];
            let mut row = vec![label.name.clone(), label.placement.clone()];
            row.extend(shape.map(|number| number.to_string()));
            row.extend(csv_cells(Some(it.ttft()), it.ttft_spread()));
            row.extend(csv_cells(it.tpot(), it.tpot_spread()));
            row
        });
        csv_text(header, rows)
    }

    fn metrics(&self) -> impl Iterator<Item = (&'static str, ErrorSummary)> {
        let summary = self.summary();
        [("TTFT", summary.ttft), ("TPOT", summary.tpot)]
            .into_iter()
            .filter_map(|(name, it)| Some((name, it?)))
    }
}

impl Comparison {
    /// For a terminal: one line per operator and lane, by phase, with its share of the phase's
    /// measured time.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{:8} {:14} {:14} {:>6} {:>9} {:>8} {:>7} {:>7}\n",
            "phase", "operator", "lane", "count", "predicted", "measured", "error", "share"
        );
        for row in &self.operators {
            let (phase, name, lane) = (row.phase, shortened(&row.name, 14), shortened(&row.lane, 14));
            let (p, m) = (duration(row.total.predicted), duration(row.total.measured));
            let error = signed_percent(row.total.error());
            let share = self.share(row).map_or("–".to_owned(), percent);
            let count = row.count;
            text +=
                &format!("{phase:8} {name:14} {lane:14} {count:>6} {p:>9} {m:>8} {error:>7} {share:>7}\n");
        }
        text
    }

    /// For a spreadsheet: one row per operator and lane, durations in seconds.
    pub fn to_csv(&self) -> String {
        let header = "phase operator lane count predicted_s measured_s error share";
        let rows = self.operators.iter().map(|row| {
            let number = |it: Option<f64>| it.map_or(String::new(), |it| it.to_string());
            vec![
                row.phase.to_string(),
                row.name.clone(),
                row.lane.clone(),
                row.count.to_string(),
                row.total.predicted.get().to_string(),
                row.total.measured.get().to_string(),
                number(row.total.error()),
                number(self.share(row)),
            ]
        });
        csv_text(header, rows)
    }
}

/// What came of a draft's tokens, and how well the steps that were made are predicted: the plan's
/// own prediction is for the acceptance that it assumes.
fn draft_lines(it: &Configuration) -> Option<String> {
    let DraftOutcome { proposed, accepted, planned } = it.draft?;
    let share = percent(accepted as f64 / proposed.max(1) as f64);
    let mut lines = format!(
        "  draft: {accepted} of {proposed} proposed tokens accepted ({share}, {} planned for each)\n",
        percent(planned)
    );
    if let Some([p, m, e]) = cells(it.comparison.tpot) {
        lines += &format!("  its steps as they were made: TPOT {p} predicted, {m} measured, {e}\n");
    }
    Some(lines)
}

/// Median, 90th percentile, worst.
fn summary_line(errors: &ErrorSummary) -> String {
    let [median, p90, worst] = [errors.median, errors.p90, errors.worst].map(percent);
    format!("median {median}, p90 {p90}, worst {worst}")
}

/// How many errors are within the band.
pub(crate) fn within_line(errors: &ErrorSummary) -> String {
    format!("{} of {} within ±{:.0} %", errors.within_band, errors.count, ERROR_BAND * 100.0)
}

/// Predicted, measured and error as texts; `None` where the metric does not exist.
pub(crate) fn cells(pair: Option<Pair>) -> Option<[String; 3]> {
    let pair = pair?;
    Some([duration(pair.predicted), duration(pair.measured), signed_percent(pair.error())])
}

fn csv_cells(pair: Option<Pair>, spread: Option<f64>) -> [String; 4] {
    let number = |it: Option<f64>| it.map_or(String::new(), |it| it.to_string());
    let (predicted, measured) = (pair.map(|it| it.predicted), pair.map(|it| it.measured));
    [predicted.map(Seconds::get), measured.map(Seconds::get), spread, pair.and_then(|it| it.error())]
        .map(number)
}
