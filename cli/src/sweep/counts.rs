//! How many points came to what.

use super::halving::Ladder;
use super::row::Status;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many points came to what.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) by_status: [AtomicU64; Status::ALL.len()],
    /// Points that an earlier run had finished.
    pub before: u64,
    /// The row that was wanted besides, where there is one.
    pub best: Option<Map<String, Value>>,
    /// What the rungs of successive halving came to.
    pub ladder: Option<Ladder>,
}

impl Counts {
    /// As JSON.
    pub fn json(&self) -> Value {
        let each = Status::ALL.iter().zip(&self.by_status);
        let mut all: Map<String, Value> = each
            .map(|(status, count)| (status.name().to_owned(), json!(count.load(Ordering::Relaxed))))
            .collect();
        all.insert("finished_before".to_owned(), json!(self.before));
        if let Some(best) = &self.best {
            all.insert("best".to_owned(), json!(best));
        }
        if let Some(ladder) = &self.ladder {
            all.insert("rungs".to_owned(), ladder.json());
        }
        Value::Object(all)
    }

    /// As words: `12 ok, 3 infeasible`.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        for (status, count) in Status::ALL.iter().zip(&self.by_status) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                words.push(format!("{count} {}", status.name()));
            }
        }
        if self.before > 0 {
            words.push(format!("{} finished before", self.before));
        }
        if words.is_empty() { "nothing to do".to_owned() } else { words.join(", ") }
    }
}
