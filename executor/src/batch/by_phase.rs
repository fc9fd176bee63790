//! Values that differ by phase.

use scenarios::Phase;

/// One value for prefill and one for decode.
#[derive(Debug)]
pub(crate) struct ByPhase<T> {
    pub prefill: T,
    pub decode: T,
}

impl<T> ByPhase<T> {
    /// The value of `phase`.
    pub fn get(&self, phase: Phase) -> &T {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }
}
