//! The homes of a layer's sublayers, with the ways to compute it from there.

use crate::half::Half;

/// Homes, and what a phase costs there is independent of the other phase: a pattern is homes and a half for each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Homed {
    /// Index of each sublayer's home.
    pub homes: Vec<usize>,
    /// Bytes of matrices and KV in each memory.
    pub bytes: Vec<u64>,
    /// The ways to compute prefill and decode, of each at least one, none worse in everything than another.
    pub halves: [Vec<Half>; 2],
}

/// A pattern by where it is in its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pick {
    /// Index of its homes.
    pub homed: usize,
    /// Index of each phase's half there.
    pub halves: [usize; 2],
}

impl Homed {
    /// The picks of these homes, which are the stack's `index`th.
    pub fn picks(&self, index: usize) -> impl Iterator<Item = Pick> + '_ {
        let [prefill, decode] = self.halves.each_ref().map(Vec::len);
        (0..prefill).flat_map(move |p| (0..decode).map(move |d| Pick { homed: index, halves: [p, d] }))
    }
}
