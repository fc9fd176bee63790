//! Rates of a device whose bottleneck were faster, which show what a faster part would be worth.

use crate::rates::estimate::{Bound, Estimate};
use crate::units::{Ratio, Seconds};

/// The factors by which times are shorter than measured, by what binds them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speedup {
    pub compute: Ratio,
    pub memory: Ratio,
}

impl Default for Speedup {
    fn default() -> Self {
        Self { compute: Ratio::ONE, memory: Ratio::ONE }
    }
}

impl Speedup {
    pub(crate) fn faster(mut self, bound: Bound, factor: Ratio) -> Self {
        let sum = |old: Ratio| Ratio::new(old.get() * factor.get()).unwrap_or(old);
        match bound {
            Bound::Launch => {}
            Bound::Compute => self.compute = sum(self.compute),
            Bound::Memory => self.memory = sum(self.memory),
        }
        self
    }

    /// The estimate, shortened by the factor of its bound.
    pub fn apply(self, estimate: Estimate) -> Estimate {
        let factor = match estimate.bound {
            Bound::Launch => Ratio::ONE,
            Bound::Compute => self.compute,
            Bound::Memory => self.memory,
        };
        estimate.shorter(factor)
    }
}

impl Estimate {
    pub(crate) fn shorter(self, factor: Ratio) -> Self {
        let shorter = |time: Seconds| time / factor.get();
        let Estimate { time, low, high, .. } = self;
        Estimate { time: shorter(time), low: shorter(low), high: shorter(high), ..self }
    }
}
