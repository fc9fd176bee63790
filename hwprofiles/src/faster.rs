//! Rates as they would be if what binds them were faster: for asking what a faster part would be worth.

use crate::attention::{AttentionRates, AttentionShape};
use crate::dtype::DType;
use crate::estimate::Missing;
use crate::gemm::GemmRates;
use crate::machine::{Device, Machine};
use crate::rates::{Bound, Estimate};
use crate::ratio::Ratio;
use crate::units::{BytesPerSec, Seconds};

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
        estimate.shorter(factor)
    }
}

impl Estimate {
    fn shorter(self, factor: Ratio) -> Self {
        let shorter = |time: Seconds| time / factor.get();
        let Estimate { time, low, high, .. } = self;
        Estimate { time: shorter(time), low: shorter(low), high: shorter(high), ..self }
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
    /// [`Device::gemm_time`] with the weights in a memory that is `factor` times as fast as the device's own. What reads
    /// the weights for m rows in the time t at one rate is done with factor · m rows in t at the other, by reading and
    /// by computing: the time is that of so many rows ÷ factor, which needs no telling what binds.
    pub fn gemm_time_from(
        &self,
        factor: Ratio,
        weights: DType,
        m: u64,
        n: u64,
        k: u64,
    ) -> Result<Estimate, Missing> {
        let rows = (m as f64 * factor.get()).round() as u64;
        let rows = if m == 0 { 0 } else { rows.max(1) };
        Ok(self.gemm_time(weights, rows, n, k)?.shorter(factor))
    }

    /// [`Device::attention_time`] with the KV cache in a memory that is `factor` times as fast as the device's own.
    pub fn attention_time_from(
        &self,
        factor: Ratio,
        kv: DType,
        shape: &AttentionShape,
    ) -> Result<Estimate, Missing> {
        let speedup = Speedup { memory: factor, ..Speedup::default() };
        Ok(speedup.of(self.attention_time(kv, shape)?))
    }

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
                device.issue.iter_mut().for_each(|issue| issue.value = issue.value / factor.get());
            }
        }
        device
    }

    /// The same device where everything that it does takes `factor` times as long.
    pub fn slower(&self, factor: Ratio) -> Self {
        let inverse = Ratio::new(1.0 / factor.get()).unwrap_or(Ratio::ONE);
        let all = [Bound::Compute, Bound::Memory, Bound::Launch];
        all.into_iter().fold(self.clone(), |device, bound| device.faster(bound, inverse))
    }
}

impl Machine {
    /// The same machine where everything takes `factor` times as long: devices, memories and links.
    pub fn slower(&self, factor: Ratio) -> Self {
        let mut machine = self.clone();
        machine.devices.iter_mut().for_each(|device| *device = device.slower(factor));
        let slow = |rate: &mut BytesPerSec| *rate = *rate / factor.get();
        machine.memories.iter_mut().for_each(|memory| slow(&mut memory.bandwidth.value));
        machine.links.iter_mut().for_each(|link| slow(&mut link.bandwidth.value));
        machine.restripe();
        machine
    }
}
