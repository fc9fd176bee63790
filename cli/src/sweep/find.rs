//! A search in each point of a sweep: the largest value of one key more with which it keeps its limits.

use anyhow::{anyhow, bail};
use serde_json::{Number, Value};
use sim::Fineness;
use std::fmt;
use std::str::FromStr;

/// A key and the values that it may have: `workload.batch=1..1024`, `workload.arrivals.poisson=0.1..100 req/s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Find {
    /// Dotted path.
    pub key: String,
    /// The least and the most.
    pub range: [f64; 2],
    /// Whole numbers, or to a fiftieth.
    pub fineness: Fineness,
    /// What stands behind the number; empty where nothing does.
    unit: String,
}

impl FromStr for Find {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wanted = || anyhow!("'{text}' is no search: KEY=FROM..TO is wanted, like workload.batch=1..1024");
        let (key, range) = text.split_once('=').ok_or_else(wanted)?;
        let (from, rest) = range.split_once("..").ok_or_else(wanted)?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (to, unit) = (&rest[..end], rest[end..].trim());
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wanted());
        let range = [number(from)?, number(to)?];
        if !(0.0 < range[0] && range[0] < range[1] && range[1].is_finite())
            || key.split('.').any(str::is_empty)
        {
            bail!("{}; from more than 0 to more than that", wanted());
        }
        let whole = unit.is_empty() && [from.trim(), to].iter().all(|text| text.parse::<u64>().is_ok());
        let fineness = if whole { Fineness::Whole } else { Fineness::Share(0.02) };
        Ok(Self { key: key.trim().to_owned(), range, fineness, unit: unit.to_owned() })
    }
}

impl fmt::Display for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, range: [from, to], fineness, unit } = self;
        let whole = if matches!(fineness, Fineness::Whole) { "whole " } else { "" };
        write!(f, "{key}={whole}{from}..{to} {unit}")
    }
}

impl Find {
    /// A value as a scenario writes it.
    pub fn value(&self, at: f64) -> Value {
        match (self.fineness, &*self.unit) {
            (Fineness::Whole, _) => Value::from(at as u64),
            (_, "") => Number::from_f64(at).map_or(Value::Null, Value::Number),
            (_, unit) => Value::from(format!("{at} {unit}")),
        }
    }
}
