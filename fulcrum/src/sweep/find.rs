//! A search in each point of a sweep: the largest value of one key with which the point keeps its
//! limits.

use serde_json::{Number, Value, json};
use sim::SearchPrecision;
use std::str::FromStr;

/// A key and the range of its values: `workload.batch=1..1024`,
/// `workload.arrivals.poisson=0.1..100 req/s`.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitSearch {
    /// The key's dotted path.
    pub key: String,
    /// The least and the most value.
    pub range: [f64; 2],
    /// Whole numbers, or to a fiftieth.
    pub precision: SearchPrecision,
    /// The unit behind the number; empty where there is none.
    unit: String,
}

impl FromStr for LimitSearch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("'{text}' is no search: KEY=FROM..TO is wanted, like workload.batch=1..1024");
        let (key, range) = text.split_once('=').ok_or_else(wanted)?;
        let (from, rest) = range.split_once("..").ok_or_else(wanted)?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (to, unit) = (&rest[..end], rest[end..].trim());
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wanted());
        let range = [number(from)?, number(to)?];
        let is_range = 0.0 < range[0] && range[0] < range[1] && range[1].is_finite();
        if !is_range || key.split('.').any(str::is_empty) {
            return Err(format!("{}; from more than 0 to more than that", wanted()));
        }
        let whole = unit.is_empty() && [from.trim(), to].iter().all(|text| text.parse::<u64>().is_ok());
        let precision = if whole { SearchPrecision::Whole } else { SearchPrecision::Share(0.02) };
        Ok(Self { key: key.trim().to_owned(), range, precision, unit: unit.to_owned() })
    }
}

impl LimitSearch {
    /// A value as a scenario writes it.
    pub(crate) fn value(&self, at: f64) -> Value {
        match (self.precision, &*self.unit) {
            (SearchPrecision::Whole, _) => Value::from(at as u64),
            (_, "") => Number::from_f64(at).map_or(Value::Null, Value::Number),
            (_, unit) => Value::from(format!("{at} {unit}")),
        }
    }

    /// The search as a sweep's identity has it.
    pub(super) fn identity(&self) -> Value {
        let whole = matches!(self.precision, SearchPrecision::Whole);
        json!({ "key": self.key, "range": self.range, "whole": whole, "unit": self.unit })
    }
}
