//! What the points of a sweep have beyond what its axes set: one key more.

use super::find::Find;
use super::halving::Halving;
use scenarios::{Grid, Point, ScenarioError};
use serde_json::{Value, json};

/// The key, and what is done with it.
#[derive(Debug, Clone)]
pub enum More {
    /// There is none.
    Nothing,
    /// Its largest value is searched with which a point keeps its limits; of requests that come and go, with which that share of
    /// them does.
    Search(Find, f64),
    /// The better points go on to its next value.
    Halving(Halving),
}

/// The column of the smallest value that was tried and is beyond the limits.
const BEYOND: &str = "beyond";

/// The column of the rung that a point has reached, from 1.
const RUNG: &str = "rung";

impl More {
    /// The key, and its first value.
    fn first(&self) -> Option<(&str, Value)> {
        match self {
            Self::Nothing => None,
            Self::Search(find, _) => Some((&find.key, find.value(find.range[0]))),
            Self::Halving(halving) => Some((&halving.steps.key, halving.steps.values[0].clone())),
        }
    }

    /// The grid's first scenario.
    pub fn point(&self, grid: &Grid) -> Result<Point, ScenarioError> {
        let first = self.first();
        grid.point_with(0, first.as_ref().map(|(key, value)| (*key, value)))
    }

    /// Its columns, and whether they are numbers: the key's first.
    pub fn columns(&self) -> Vec<(String, bool)> {
        let Some((key, value)) = self.first() else { return vec![] };
        let second = match self {
            Self::Halving(_) => (RUNG, true),
            _ => (BEYOND, value.is_number()),
        };
        vec![(key.to_owned(), value.is_number()), (second.0.to_owned(), second.1)]
    }

    /// The key and its values, as a sweep's identity has them.
    pub fn identity(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Search(find, share) => json!({ "find": find.to_string(), "share": share }),
            Self::Halving(Halving { steps, eta }) => {
                json!({ "halve": steps.key, "values": steps.values, "eta": eta })
            }
        }
    }

    /// How often a point may be run.
    pub fn rungs(&self) -> usize {
        match self {
            Self::Halving(halving) => halving.steps.values.len(),
            _ => 1,
        }
    }
}
