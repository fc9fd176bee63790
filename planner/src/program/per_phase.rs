//! One value for each phase.

use scenarios::Phase;
use std::ops::Index;

/// One value for prefill and one for decode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct PerPhase<T> {
    pub prefill: T,
    pub decode: T,
}

impl<T> PerPhase<T> {
    /// The values that `value` returns for the phases.
    ///
    /// # Errors
    /// The first error of `value`.
    pub fn try_from_fn<E>(value: impl Fn(Phase) -> Result<T, E>) -> Result<Self, E> {
        Ok(Self { prefill: value(Phase::Prefill)?, decode: value(Phase::Decode)? })
    }
}

impl<T> Index<Phase> for PerPhase<T> {
    type Output = T;

    fn index(&self, phase: Phase) -> &T {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }
}
