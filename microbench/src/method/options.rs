//! What to measure, how far a measurement is, and what its result is.

use hwprofiles::Host;
use std::fmt;

/// How thorough to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Under three seconds, on tiny operands. Every table is there and every result is verified,
    /// but the numbers mean little. For tests of the code around a measurement.
    Tiny,
    /// Under half a minute on two cores.
    Quick,
    /// About five minutes.
    Full,
}

/// How thoroughly to measure, and what to write beside the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How thorough to be.
    pub depth: Depth,
    /// Today, `YYYY-MM-DD`, for the provenance of every number.
    pub date: String,
    /// The command that measures, for the same: `fulcrum bench --quick`.
    pub command: String,
}

/// How far a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Visits to points that are done.
    pub done: usize,
    /// Visits that there will be, as far as the time that they take allows to tell. At the end, and
    /// only then, `done == total`.
    pub total: usize,
    /// What is being measured: "matrix products in bf16".
    pub subject: &'a str,
}

/// Something about a measurement that its reader should know; not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Which table: "matrix products in bf16, 2 threads".
    pub subject: String,
    /// What is wrong with it and what would help.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}

/// A measured host.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredHost {
    /// The measured numbers.
    pub host: Host,
    /// What to know about them.
    pub warnings: Vec<Warning>,
}
