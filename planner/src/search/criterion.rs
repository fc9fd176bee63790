//! The criteria of a front.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A quantity that a front makes small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Criterion {
    /// Time to the first token.
    Ttft,
    /// Time per output token.
    Tpot,
    /// Energy of all devices per output token.
    Energy,
    /// Cost of machine and electricity per output token.
    Cost,
}

impl Criterion {
    /// All criteria.
    pub const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::Energy, Self::Cost];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Energy => "energy",
            Self::Cost => "cost",
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of an unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no criterion: write two or three of ttft, tpot, energy, cost, like ttft,tpot")]
pub struct UnknownCriterion(String);

impl FromStr for Criterion {
    type Err = UnknownCriterion;

    fn from_str(word: &str) -> Result<Self, UnknownCriterion> {
        Self::ALL.into_iter().find(|c| c.name() == word).ok_or_else(|| UnknownCriterion(word.to_owned()))
    }
}
