//! A GPU as a device: measured rates where there are some, the datasheet's elsewhere.

use crate::attention::AttentionRates;
use crate::dtype::DType;
use crate::gemm::GemmRates;
use crate::machine::{Device, DeviceDetails, DeviceKind, MemoryId};
use crate::parts::GpuPart;
use crate::provenance::{Provenance, Sourced};
use crate::units::Watts;
use std::collections::BTreeMap;

/// Share of its power that a GPU draws which waits with a model loaded.
const OF_POWER_WAITING: f64 = 0.20;

impl GpuPart {
    /// The device that it is in a machine in which its memory is `memory`: measured rates, and for formats that
    /// were not measured those of its datasheet.
    pub fn device(&self, memory: MemoryId) -> Device {
        let bandwidth = self.reached_bandwidth();
        let (mut gemm, mut attention) = (BTreeMap::new(), BTreeMap::new());
        for dtype in DType::ALL {
            if let Some(peak) = self.reached_peak(dtype) {
                let source = || peak.source.clone();
                if dtype.holds_weights() {
                    gemm.insert(dtype, GemmRates::roofline(dtype, peak.value, bandwidth.value, source()));
                }
                let rates = AttentionRates::roofline(dtype, peak.value, bandwidth.value, source());
                attention.insert(dtype, rates);
            }
        }
        gemm.extend(self.gemm.clone());
        attention.extend(self.attention.clone());
        self.add_twins(&mut gemm, &mut attention);
        Device {
            name: "gpu".to_owned(),
            kind: DeviceKind::Gpu,
            memory,
            reads: vec![],
            cores: Vec::new(),
            launch: self.launch.clone(),
            issue: self.issue.clone(),
            sync: self.sync.clone(),
            gemm,
            attention,
            elementwise: bandwidth,
            power: self.power.clone(),
            idle_power: self.idle_power.clone().or_else(|| self.power.as_ref().map(waiting)),
            price: self.price.clone(),
            ranks: None,
            details: DeviceDetails { lifetime: self.lifetime.clone(), ..DeviceDetails::default() },
        }
    }

    /// bf16 and f16 go through the same units: with equal peaks, what was measured of one stands for the other.
    fn add_twins(
        &self,
        gemm: &mut BTreeMap<DType, GemmRates>,
        attention: &mut BTreeMap<DType, AttentionRates>,
    ) {
        for (wanted, twin) in [(DType::F16, DType::Bf16), (DType::Bf16, DType::F16)] {
            let peak = |dtype| self.peak.get(&dtype).map(|peak| peak.value);
            if peak(wanted) != peak(twin) || peak(twin).is_none() {
                continue;
            }
            let as_twin = |source: &Provenance| Provenance::Estimated {
                reason: format!("as {twin}, whose peak is the same ({source})"),
            };
            if let (false, Some(rates)) = (self.gemm.contains_key(&wanted), self.gemm.get(&twin)) {
                let mut rates = rates.clone();
                rates.source = as_twin(&rates.source);
                gemm.insert(wanted, rates);
            }
            if let (false, Some(rates)) = (self.attention.contains_key(&wanted), self.attention.get(&twin)) {
                let mut rates = rates.clone();
                rates.source = as_twin(&rates.source);
                attention.insert(wanted, rates);
            }
        }
    }
}

/// What a GPU draws while it waits, where only its busy draw is known.
fn waiting(power: &Sourced<Watts>) -> Sourced<Watts> {
    let reason = format!(
        "{:.0} % of {}: a CUDA context alone adds 26 to 66 W to an idle A100, H100 or L40S, arXiv 2605.23918",
        OF_POWER_WAITING * 100.0,
        power.value
    );
    Sourced { value: power.value * OF_POWER_WAITING, source: Provenance::Estimated { reason } }
}
