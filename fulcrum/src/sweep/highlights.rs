//! What a sweep ends with: its fastest rows, and why points have no numbers.

use super::rank::{BestRow, RowRank};
use super::row::{PointStatus, SweepColumns};
use crate::table::cells;
use hwprofiles::Seconds;
use planner::rate_text;
use serde_json::{Map, Value};

/// What rows are compared by: the name of the best one, its column, and whether the most is best.
const COMPARED: [(&str, &str, bool); 3] = [
    ("least TTFT", "ttft_s_mean", false),
    ("least TPOT", "tpot_s_mean", false),
    ("most tok/s", "output_tokens_per_s", true),
];

/// Looks at every row of a sweep.
pub(crate) struct RowHighlights<'c> {
    best: Vec<(&'static str, BestRow<'c>)>,
    columns: &'c SweepColumns,
    /// Of each status: the number and the message of the first row that has one.
    reasons: [Option<[String; 2]>; PointStatus::ALL.len()],
}

/// The fastest rows of a sweep, and the first message of each kind: why points have no numbers, or
/// what is noted of those that have.
#[derive(Debug, Default)]
pub struct SweepHighlights {
    /// Each with what it is best by; its cells by the names of their columns.
    best: Vec<(&'static str, Map<String, Value>)>,
    /// The keys that are swept.
    keys: Vec<String>,
    /// Status, number of the point, message.
    reasons: Vec<[String; 3]>,
}

impl<'c> RowHighlights<'c> {
    pub(crate) fn new(columns: &'c SweepColumns) -> Self {
        let best = COMPARED.into_iter().filter_map(|(name, column, most)| {
            let rank = RowRank { column: column.to_owned(), most };
            Some((name, rank.best_of(columns).ok()?))
        });
        Self { best: best.collect(), columns, reasons: Default::default() }
    }

    pub(crate) fn see(&mut self, row: &str) {
        self.best.iter_mut().for_each(|(_, best)| best.see(row));
        let (cells, first) = (cells(row), 1 + self.columns.keys().count());
        let status = PointStatus::ALL.iter().position(|status| cells[first] == status.name());
        if let Some(status) = status.filter(|_| !cells[first + 1].is_empty()) {
            self.reasons[status].get_or_insert_with(|| [cells[0].clone(), cells[first + 1].clone()]);
        }
    }

    pub(crate) fn finish(self) -> SweepHighlights {
        let reasons = PointStatus::ALL.iter().zip(self.reasons).filter_map(|(status, reason)| {
            let [point, message] = reason?;
            Some([status.name().to_owned(), point, message])
        });
        SweepHighlights {
            reasons: reasons.collect(),
            best: self.best.into_iter().filter_map(|(name, best)| Some((name, best.row()?))).collect(),
            keys: self.columns.keys().map(str::to_owned).collect(),
        }
    }
}

impl SweepHighlights {
    /// A line for each of the best rows, and one for each kind of reason. Empty if there is
    /// nothing to tell.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if !self.best.is_empty() {
            text += &format!("{:<10} {:>6} {:>9} {:>9} {:>8}\n", "", "point", "TTFT", "TPOT", "tok/s");
        }
        for (name, row) in &self.best {
            let number = |column: &str| row.get(column).and_then(Value::as_f64);
            let seconds = |column| number(column).map_or("–".to_owned(), |s| Seconds::new(s).to_string());
            let rate = number("output_tokens_per_s").map_or("–".to_owned(), rate_text);
            let word = |key: &String| Some(format!("{key}={}", plain(row.get(key)?)));
            let settings: Vec<_> = self.keys.iter().filter_map(word).collect();
            let point = row.get("point").map(plain).unwrap_or_default();
            let [ttft, tpot] = ["ttft_s_mean", "tpot_s_mean"].map(seconds);
            let settings = settings.join(" ");
            text += &format!("{name:<10} {point:>6} {ttft:>9} {tpot:>9} {rate:>8}  {settings}\n");
        }
        for [status, point, message] in &self.reasons {
            text += &format!("The first {status} point, {point}: {message}\n");
        }
        text
    }
}

/// A cell as the table holds it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::sweep::row::PointAnswer;
    use serde_json::json;

    fn highlights(answers: &[PointAnswer]) -> SweepHighlights {
        let columns = SweepColumns::new(vec![("machine".to_owned(), false)]);
        let mut highlights = RowHighlights::new(&columns);
        for (index, answer) in answers.iter().enumerate() {
            let machine = json!(format!("m{index}"));
            highlights.see(&columns.row(index as u64, [Some(&machine)].into_iter(), answer, "digest"));
        }
        highlights.finish()
    }

    fn answer(ttft: f64, tpot: f64, rate: f64) -> PointAnswer {
        let times = json!({"ttft_s": {"mean": ttft}, "tpot_s": {"mean": tpot}, "output_tokens_per_s": rate});
        PointAnswer::from_measures("planned", &times)
    }

    #[test]
    fn the_fastest_rows_and_the_first_reasons_are_told() {
        let none = PointAnswer::from_error(&Error::infeasible("dram is too small"));
        let later = PointAnswer::from_error(&Error::infeasible("hbm is too small"));
        let wrong = PointAnswer::from_error(&Error::input("batch: 0 is none"));
        let told =
            highlights(&[none, answer(2.0, 0.05, 20.0), wrong, answer(1.0, 0.0625, 160.0), later]).to_text();
        insta::assert_snapshot!(told);
    }

    #[test]
    fn a_sweep_without_rows_tells_nothing() {
        assert_eq!(highlights(&[]).to_text(), "");
    }
}
