//! How many points came to which status.

use super::halving::HalvingLadder;
use super::highlights::SweepHighlights;
use super::row::PointStatus;
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

/// How many points came to which status, and what else a sweep found.
#[derive(Debug, Default)]
pub struct SweepCounts {
    /// In the order of [`PointStatus::ALL`].
    pub(super) by_status: [u64; PointStatus::ALL.len()],
    /// Points that an earlier run had finished.
    pub finished_before: u64,
    /// The row that was wanted besides, where there is one.
    pub best: Option<Map<String, Value>>,
    /// The fastest rows, and why points have no numbers; nothing after a halving, whose rows are of
    /// several rungs.
    pub highlights: SweepHighlights,
    /// What the rungs of successive halving came to.
    pub ladder: Option<HalvingLadder>,
}

impl SweepCounts {
    /// The counts as JSON, by the names of the statuses.
    pub fn to_json(&self) -> Value {
        let each = PointStatus::ALL.iter().zip(&self.by_status);
        let mut all: Map<String, Value> =
            each.map(|(status, count)| (status.name().to_owned(), json!(count))).collect();
        all.insert("finished_before".to_owned(), json!(self.finished_before));
        if let Some(best) = &self.best {
            all.insert("best".to_owned(), json!(best));
        }
        if let Some(ladder) = &self.ladder {
            all.insert("rungs".to_owned(), ladder.to_json());
        }
        Value::Object(all)
    }

    /// Refuses a sweep of which no point was answered. That nothing fits is an answer.
    ///
    /// # Errors
    /// [`Error::Input`] if something is wrong with all points, [`Error::Failed`] if one of them
    /// failed as well.
    pub fn require_answers(&self) -> Result<()> {
        let of = |status: PointStatus| self.by_status[status as usize];
        let answered = of(PointStatus::Ok) + of(PointStatus::Infeasible) + self.finished_before;
        let text = || format!("none of the {} points has an answer", self.by_status.iter().sum::<u64>());
        match (answered, of(PointStatus::Failed), of(PointStatus::Invalid)) {
            (0, 1.., _) => Err(Error::failed(text())),
            (0, 0, 1..) => Err(Error::input(text())),
            _ => Ok(()),
        }
    }

    /// The counts as words: `12 ok, 3 infeasible`.
    pub fn to_text(&self) -> String {
        let each = PointStatus::ALL.iter().zip(&self.by_status).filter(|(_, count)| **count > 0);
        let mut words: Vec<_> = each.map(|(status, count)| format!("{count} {}", status.name())).collect();
        if self.finished_before > 0 {
            words.push(format!("{} finished before", self.finished_before));
        }
        if words.is_empty() { "nothing to do".to_owned() } else { words.join(", ") }
    }
}
