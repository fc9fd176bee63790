//! All-reduce: every GPU gets the sum over all GPUs, which joins the shares of a matrix that is cut
//! along its inputs.

use crate::rates::curve::Curve;
use crate::units::{Bytes, BytesPerSec, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// How long an all-reduce over linked GPUs takes.
///
/// Recursive halving, then doubling, over N ranks takes 2·log₂ N steps, in which every rank sends
/// 2(N − 1)/N of the bytes: t(B, N) = 2·log₂ N·α + 2(N − 1)/N · B/β. This is Rabenseifner's
/// algorithm (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations
/// in MPICH", IJHPCA 2005). A ring sends as many bytes in 2(N − 1) steps, but for the few bytes of
/// a decode step engines scale better than a ring. Where times were measured over some number of
/// ranks, the measurement gives the time and the formula its change with the ranks: t =
/// t_measured(B) · t(B, N) / t(B, N_measured).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// α of one step.
    pub step: Sourced<Seconds>,
    /// β: the rate at which each rank sends while all ranks do.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
    /// Whether every pair of GPUs has a link of its own, whose rate β is: a rank of N then sends
    /// over N − 1 links at once, at (N − 1)·β.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_pair: bool,
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
    /// The time until all `ranks` have the sum of `bytes` that each of them holds; zero for one
    /// rank or no bytes.
    pub fn time(&self, bytes: Bytes, ranks: u64) -> Seconds {
        if bytes == Bytes::ZERO || ranks < 2 {
            return Seconds::ZERO;
        }
        let formula = self.formula(bytes, ranks);
        let measured = self.measured.as_ref().filter(|measured| measured.ranks > 1);
        let measured = measured.and_then(|m| Some((m.times.time_of(bytes)?, self.formula(bytes, m.ranks))));
        measured.map_or(formula, |(time, there)| time * (formula.get() / there.get()))
    }

    /// The time until each of `ranks` has the shares of all others, `bytes` together. It is the
    /// second half of an all-reduce.
    pub fn gather_time(&self, bytes: Bytes, ranks: u64) -> Seconds {
        self.time(bytes, ranks) * 0.5
    }

    fn formula(&self, bytes: Bytes, ranks: u64) -> Seconds {
        let ranks = ranks as f64;
        let links = if self.by_pair { ranks - 1.0 } else { 1.0 };
        self.step.value * (2.0 * ranks.log2())
            + (bytes / self.bandwidth.value) * (2.0 * (ranks - 1.0) / ranks / links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a link between each pair, two GPUs take what they take over one link, and eight send
    /// over seven links at once.
    #[test]
    fn a_link_for_each_pair_adds_up() {
        let estimated = |value| Sourced::estimated(value, "a test");
        let bandwidth = Sourced::estimated(BytesPerSec::new(5e10), "a test");
        let one = AllReduce { step: estimated(Seconds::ZERO), bandwidth, by_pair: false, measured: None };
        let each = AllReduce { by_pair: true, ..one.clone() };
        let bytes = Bytes::new(1 << 26);
        assert_eq!(each.time(bytes, 2), one.time(bytes, 2));
        for ranks in [3, 4, 8] {
            let (shared, own) = (one.time(bytes, ranks).get(), each.time(bytes, ranks).get());
            assert!((shared / own / (ranks - 1) as f64 - 1.0).abs() < 1e-12, "{ranks}: {shared} {own}");
        }
    }
}
