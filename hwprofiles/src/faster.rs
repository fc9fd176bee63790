//! Rates as they would be if what binds them were faster: for asking what a faster part would be worth.

use crate::attention::AttentionRates;
use crate::gemm::GemmRates;
use crate::machine::Device;
use crate::rates::{Bound, Estimate};
use crate::ratio::Ratio;
use crate::units::Seconds;

/// By which factor times are shorter than the measured points say, by what binds them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speedup {
    compute: Ratio,
    memory: Ratio,
}

impl Default for Speedup {
    fn default() -> Self {
        Self { compute: Ratio::ONE, memory: Ratio::ONE }
    }
}

impl Speedup {
    fn faster(mut self, bound: Bound, factor: Ratio) -> Self {
        let sum = |old: Ratio| Ratio::new(old.get() * factor.get()).unwrap_or(old);
        match bound {
            Bound::Launch => {}
            Bound::Compute => self.compute = sum(self.compute),
            Bound::Memory => self.memory = sum(self.memory),
        }
        self
    }

    /// The estimate, shorter where it is bound by what is faster.
    pub fn of(self, estimate: Estimate) -> Estimate {
        let factor = match estimate.bound {
            Bound::Launch => Ratio::ONE,
            Bound::Compute => self.compute,
            Bound::Memory => self.memory,
        };
        let shorter = |time: Seconds| time / factor.get();
        let Estimate { time, low, high, .. } = estimate;
        Estimate { time: shorter(time), low: shorter(low), high: shorter(high), ..estimate }
    }
}

impl GemmRates {
    /// The same where times bound by `bound` are shorter by `factor`; the points stay what was measured.
    pub fn faster(&self, bound: Bound, factor: Ratio) -> Self {
        let mut rates = self.clone();
        rates.speedup = self.speedup.faster(bound, factor);
        rates
    }
}

impl AttentionRates {
    /// The same where times bound by `bound` are shorter by `factor`; the points stay what was measured.
    pub fn faster(&self, bound: Bound, factor: Ratio) -> Self {
        let mut rates = self.clone();
        rates.speedup = self.speedup.faster(bound, factor);
        rates
    }
}

impl Device {
    /// The same device where what is bound by `bound` is faster by `factor`: products and attention that compute or
    /// that read memory, with the latter all that has no matrix, or launches and wake-ups.
    pub fn faster(&self, bound: Bound, factor: Ratio) -> Self {
        let mut device = self.clone();
        device.gemm.values_mut().for_each(|rates| *rates = rates.faster(bound, factor));
        device.attention.values_mut().for_each(|rates| *rates = rates.faster(bound, factor));
        match bound {
            Bound::Compute => {}
            Bound::Memory => device.elementwise.value = device.elementwise.value * factor.get(),
            Bound::Launch => {
                device.launch.value = device.launch.value / factor.get();
                device.sync.value = device.sync.value / factor.get();
            }
        }
        device
    }
}
