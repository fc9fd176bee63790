//! One key more than the axes of a sweep set.

use super::find::LimitSearch;
use super::halving::Halving;
use scenarios::{Grid, GridPoint, ScenarioError};
use serde_json::{Value, json};

/// The key, and what is done with it.
#[derive(Debug, Clone)]
pub enum ExtraKey {
    /// There is none.
    None,
    /// The largest value with which a point keeps its limits is searched. Of requests that come and
    /// go, this share must keep them.
    Search(LimitSearch, f64),
    /// The better points go on to the key's next value.
    Halving(Halving),
}

/// The column of the smallest value that was tried and does not keep the limits.
const BEYOND: &str = "beyond";

/// The column of the rung that a point has reached, from 1.
const RUNG: &str = "rung";

impl ExtraKey {
    /// The key, and its first value.
    fn first(&self) -> Option<(&str, Value)> {
        match self {
            Self::None => None,
            Self::Search(search, _) => Some((&search.key, search.value(search.range[0]))),
            Self::Halving(halving) => Some((&halving.steps.key, halving.steps.values[0].clone())),
        }
    }

    /// The first scenario of `grid`, with the key's first value.
    pub(super) fn first_point(&self, grid: &Grid) -> Result<GridPoint, ScenarioError> {
        let first = self.first();
        grid.point_with(0, first.as_ref().map(|(key, value)| (*key, value)))
    }

    /// The columns that it adds, the key's first, and whether they hold numbers.
    pub(super) fn columns(&self) -> Vec<(String, bool)> {
        let Some((key, value)) = self.first() else { return vec![] };
        let second = match self {
            Self::Halving(_) => (RUNG, true),
            _ => (BEYOND, value.is_number()),
        };
        vec![(key.to_owned(), value.is_number()), (second.0.to_owned(), second.1)]
    }

    /// The key and its values, as a sweep's identity has them.
    pub(super) fn identity(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Search(search, share) => json!({ "find": search.identity(), "share": share }),
            Self::Halving(Halving { steps, eta }) => {
                json!({ "halve": steps.key, "values": steps.values, "eta": eta })
            }
        }
    }

    /// How often a point may be run.
    pub(super) fn rungs(&self) -> usize {
        match self {
            Self::Halving(halving) => halving.steps.values.len(),
            _ => 1,
        }
    }
}
