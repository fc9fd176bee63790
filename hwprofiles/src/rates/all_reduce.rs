//! The sum over GPUs that each of them gets: what joins the shares of a matrix that is cut along its inputs.

use crate::rates::curve::Curve;
use crate::units::{Bytes, BytesPerSec, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// What an all-reduce over GPUs that are linked with each other takes.
///
/// Recursive halving, then doubling, over N ranks goes through 2·log₂ N steps, in which every rank sends 2(N − 1)/N of
/// the bytes (Rabenseifner's algorithm, in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
/// Operations in MPICH", IJHPCA 2005): t(B, N) = 2·log₂ N·α + 2(N − 1)/N · B/β. A ring sends as much in 2(N − 1) steps;
/// what engines do for the few bytes of a decode step grows more slowly with N than that. Where it was measured over some number of ranks, the formula says how it
/// changes with their number, and the measurement what it takes: t = t_measured(B) · t(B, N) / t(B, N_measured).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// α of one step.
    pub step: Sourced<Seconds>,
    /// β: what each rank sends while all do.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
    /// Measured times against bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredAllReduce>,
}

/// Measured all-reduces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredAllReduce {
    /// Over how many GPUs.
    #[serde(deserialize_with = "crate::units::checked")]
    pub ranks: u64,
    /// The times.
    pub times: Curve<Seconds>,
}

impl AllReduce {
    /// Time in which the sum of `bytes` on each of `ranks` reaches all of them; zero for one rank or no bytes.
    pub fn time(&self, bytes: Bytes, ranks: u64) -> Seconds {
        if bytes == Bytes::ZERO || ranks < 2 {
            return Seconds::ZERO;
        }
        let formula = self.formula(bytes, ranks);
        let measured = self.measured.as_ref().filter(|measured| measured.ranks > 1);
        let measured = measured.and_then(|m| Some((m.times.time_of(bytes)?, self.formula(bytes, m.ranks))));
        measured.map_or(formula, |(time, there)| time * (formula.get() / there.get()))
    }

    /// Time in which each of `ranks` gets the shares of all others, `bytes` together: the second half of an all-reduce.
    pub fn gather_time(&self, bytes: Bytes, ranks: u64) -> Seconds {
        self.time(bytes, ranks) * 0.5
    }

    fn formula(&self, bytes: Bytes, ranks: u64) -> Seconds {
        let ranks = ranks as f64;
        self.step.value * (2.0 * ranks.log2())
            + (bytes / self.bandwidth.value) * (2.0 * (ranks - 1.0) / ranks)
    }
}
