//! Devices and machines that are faster or slower than measured.

use crate::machine::device::Device;
use crate::machine::graph::Machine;
use crate::machine::times::MissingRate;
use crate::rates::{AttentionShape, Bound, Estimate, Speedup};
use crate::units::{BytesPerSec, DType, Ratio};

impl Device {
    /// [`Device::gemm_time`] with the weights in a memory that is `factor` times as fast as the
    /// device's own. If reading the weights for m rows takes the time t at one rate, then at the
    /// other rate factor · m rows take t, both for reading and for computing. The time is therefore
    /// that of factor · m rows ÷ factor, whichever of the two binds. Dequantisation takes as long
    /// as from the device's own memory.
    pub fn gemm_time_from(
        &self,
        factor: Ratio,
        weights: DType,
        m: u64,
        n: u64,
        k: u64,
    ) -> Result<Estimate, MissingRate> {
        self.product_time(weights, [m, n, k], factor).map(|estimate| self.as_run(weights, [m, k], estimate))
    }

    /// [`Device::attention_time`] with the KV cache in a memory that is `factor` times as fast as
    /// the device's own.
    pub fn attention_time_from(
        &self,
        factor: Ratio,
        kv: DType,
        shape: &AttentionShape,
    ) -> Result<Estimate, MissingRate> {
        let speedup = Speedup { memory: factor, ..Speedup::default() };
        Ok(speedup.apply(self.attention_time(kv, shape)?))
    }

    /// The same device, faster by `factor` where `bound` binds: products and attention that
    /// compute, or those that read memory together with elementwise operators, or launches and
    /// wake-ups.
    pub fn faster(&self, bound: Bound, factor: Ratio) -> Self {
        let mut device = self.clone();
        device.gemm.values_mut().for_each(|rates| *rates = rates.faster(bound, factor));
        device.attention.values_mut().for_each(|rates| *rates = rates.faster(bound, factor));
        match bound {
            Bound::Compute => {
                let details = &mut device.details;
                details.dequantisation = details.dequantisation.take().map(|cost| cost.faster(factor));
                let library = details.widened.as_mut().map(|products| &mut products.rate);
                let products = [details.quantised_product.as_mut(), library];
                products.into_iter().flatten().for_each(|rate| rate.value = rate.value * factor.get());
            }
            Bound::Memory => {
                let details = &mut device.details;
                let reads = [
                    &mut details.quantised_read,
                    &mut details.float_read,
                    &mut details.state_rate,
                    &mut details.cache_read_by_head,
                ];
                let rates = reads.into_iter().flatten().chain([&mut device.elementwise]);
                rates.for_each(|rate| rate.value = rate.value * factor.get());
            }
            Bound::Launch => {
                device.launch.value = device.launch.value / factor.get();
                device.sync.value = device.sync.value / factor.get();
                let details = &mut device.details;
                let others = [&mut device.issue, &mut details.kernel, &mut details.mixture];
                others.into_iter().flatten().for_each(|time| time.value = time.value / factor.get());
            }
        }
        device
    }

    /// The same device, on which everything takes `factor` times as long.
    pub fn slower(&self, factor: Ratio) -> Self {
        let inverse = Ratio::new(1.0 / factor.get()).unwrap_or(Ratio::ONE);
        let all = [Bound::Compute, Bound::Memory, Bound::Launch];
        all.into_iter().fold(self.clone(), |device, bound| device.faster(bound, inverse))
    }
}

impl Machine {
    /// The same machine, on which everything takes `factor` times as long: devices, memories and
    /// links.
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
