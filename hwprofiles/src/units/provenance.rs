//! Where a number came from. Profiles hold no number without a provenance.

use crate::units::checked::Checked;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where one number, or one table of numbers, came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Provenance {
    /// A microbenchmark measured it.
    Measured {
        /// The day, `YYYY-MM-DD`.
        date: String,
        /// The command that measured it.
        command: String,
        /// Spread of the samples: (third quartile − first quartile) ÷ median.
        #[serde(deserialize_with = "crate::units::checked")]
        spread: f64,
    },
    /// A vendor published it.
    Datasheet {
        /// Which document.
        document: String,
        /// How far to trust it, if somebody judged that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confidence: Option<Confidence>,
    },
    /// Somebody derived it. This is the weakest source.
    Estimated {
        /// From what, and why.
        reason: String,
    },
}

/// How far a published number is to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// One weak source.
    Low,
    /// Second hand.
    Medium,
    /// The maker's own page.
    High,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        })
    }
}

impl Provenance {
    /// One word for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Provenance::Measured { .. } => "measured",
            Provenance::Datasheet { .. } => "datasheet",
            Provenance::Estimated { .. } => "estimated",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provenance::Measured { date, command, spread } => {
                write!(f, "measured {date} by `{command}`, spread {:.1} %", spread * 100.0)
            }
            Provenance::Datasheet { document, confidence: None } => write!(f, "datasheet: {document}"),
            Provenance::Datasheet { document, confidence: Some(confidence) } => {
                write!(f, "datasheet ({confidence} confidence): {document}")
            }
            Provenance::Estimated { reason } => write!(f, "estimated: {reason}"),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value, with its unit.
    pub value: T,
    /// Where it came from.
    pub source: Provenance,
}

impl<T> Sourced<T> {
    /// A measured value.
    pub fn measured(value: T, date: &str, command: &str, spread: f64) -> Self {
        let source = Provenance::Measured { date: date.to_owned(), command: command.to_owned(), spread };
        Self { value, source }
    }

    /// An estimated value.
    pub fn estimated(value: T, reason: &str) -> Self {
        Self { value, source: Provenance::Estimated { reason: reason.to_owned() } }
    }
}

impl<T: Checked> Checked for Sourced<T> {
    fn check(&self) -> Result<(), String> {
        self.value.check()
    }
}
