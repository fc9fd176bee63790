//! A GPU as a device: measured rates where there are some, the datasheet's otherwise. Without a
//! stated share ([`GpuPart::achieved`]), long products reach 60 % of the peak rate (fits to
//! measured products of A100, H100, H200, B200 and L40S give 61–82 %) and long streams 88 % of the
//! peak bandwidth, or 80 % with error-correcting codes among the data; the answers say
//! [`Basis::Estimated`](crate::Basis::Estimated). A norm, a rotation or an activation of one token
//! takes 1.9 to 2.7 µs on an RTX 4090 and on an RTX PRO 6000 (`data/measured/vllm_*_layers.csv`).

use crate::machine::{Device, DeviceDetails, DeviceKind, MemoryId};
use crate::parts::gpu::sheet::GpuPart;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{BytesPerSec, DType, FlopPerSec, Provenance, Ratio, Seconds, Sourced, Watts};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The share of its power that a GPU uses while it waits with a model loaded.
const OF_POWER_WAITING: f64 = 0.20;

impl GpuPart {
    /// The device of a machine in which `memory` is the GPU's memory: measured rates, and the
    /// datasheet's for formats that were not measured.
    pub fn device(&self, memory: MemoryId) -> Device {
        let bandwidth = self.reached_bandwidth();
        let (mut gemm, mut attention) = (BTreeMap::new(), BTreeMap::new());
        // A cache of blocks is widened before it is multiplied.
        let widened = self.reached_peak(DType::Bf16).or_else(|| self.reached_peak(DType::F16));
        let widened = widened.map(|rate| rate.value);
        for dtype in self.formats() {
            if let Some(peak) = self.reached_peak(dtype) {
                let source = || peak.source.clone();
                if dtype.holds_weights() {
                    gemm.insert(dtype, GemmRates::roofline(dtype, peak.value, bandwidth.value, source()));
                }
                if dtype.holds_kv() {
                    let rate = widened.filter(|_| dtype.is_quantised()).unwrap_or(peak.value);
                    let rates = AttentionRates::roofline(dtype, rate, bandwidth.value, source())
                        .with_decode_rate(widened.unwrap_or(peak.value) * OF_RATE_DECODE_ATTENTION);
                    attention.insert(dtype, rates);
                }
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
            details: DeviceDetails {
                architecture: self.architecture.clone(),
                lifetime: self.lifetime.clone(),
                l2_bandwidth: self.l2_bandwidth.clone(),
                dequantisation: self.dequantisation_cost(),
                kernel: Some(self.kernel.clone().unwrap_or_else(small_kernel)),
                grouped_product: self.executor.as_ref().map(|it| it.grouped_product.clone()),
                mixture: self.executor.as_ref().map(|it| it.mixture.clone()),
                replays_alone: self.executor.is_some(),
                ..DeviceDetails::default()
            },
        }
    }

    /// The formats with a roofline: Fulcrum's own, and the 4-bit floats that it multiplies as they
    /// lie.
    fn formats(&self) -> impl Iterator<Item = DType> {
        let native = [DType::Mxfp4, DType::Nvfp4].into_iter().filter(|dtype| self.peak.contains_key(dtype));
        DType::OWN.into_iter().chain(native.collect::<Vec<_>>())
    }

    /// bf16 and f16 use the same units: where their peaks are equal, measurements of one stand for
    /// the other.
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

/// The share of the rate of long products at which decode attention computes: its tiles hold the
/// few queries of one group, and one of them in two is empty.
const OF_RATE_DECODE_ATTENTION: f64 = 0.5;

const SMALL_KERNEL: Seconds = Seconds::new(2.4e-6);

/// The time of a small kernel on a GPU of which nothing is known.
fn small_kernel() -> Sourced<Seconds> {
    Sourced::estimated(
        SMALL_KERNEL,
        "the median of norms, rotations and activations of one token on two GPUs",
    )
}

/// The power of a waiting GPU, where only its busy power is known.
fn waiting(power: &Sourced<Watts>) -> Sourced<Watts> {
    let reason = format!(
        "{:.0} % of {}: a CUDA context alone adds 26 to 66 W to an idle A100, H100 or L40S, arXiv 2605.23918",
        OF_POWER_WAITING * 100.0,
        power.value
    );
    Sourced { value: power.value * OF_POWER_WAITING, source: Provenance::Estimated { reason } }
}

const OF_PEAK_RATE: f64 = 0.6;

/// The share of its peak that fp8 reaches, as a part of the share of 16-bit floats: the median of
/// H100, H200, GH200, GB200 and B200 (0.88, 0.91, 0.93, 0.99, 1.05), whose shares are known.
const OF_SHARE_FP8: f64 = 0.93;

/// The share of its peak that fp8 is expected to reach where 16-bit floats reach `share` of theirs.
fn share_of_fp8(share: &Sourced<Ratio>) -> Option<Sourced<Ratio>> {
    let rounded = (share.value.get() * OF_SHARE_FP8 * 1e3).round() / 1e3;
    let reason = format!("{OF_SHARE_FP8} of the share of 16-bit floats ({})", share.source);
    Ratio::new(rounded).map(|share| Sourced::estimated(share, &reason))
}

/// The share of the peak that long streams reach where nothing is known of a GPU: on an RTX 4090
/// 0.90 and 0.92 (attention, products), on an H100 and an H200 0.86 and 0.87.
const OF_PEAK_BANDWIDTH: f64 = 0.88;

/// The same where the codes that correct errors are read from the same memory: as on an L40S.
const OF_PEAK_WITH_CODES: f64 = 0.8;

impl GpuPart {
    /// The rate that products with weights of `dtype` are expected to reach. Without a known peak
    /// but with measured products it is a share of the fastest of them, because attention is slower
    /// than products. Storage formats without a peak of their own are widened to 16 bits and reach
    /// that peak.
    pub fn reached_peak(&self, dtype: DType) -> Option<Sourced<FlopPerSec>> {
        let widened = [DType::Bf16, DType::F16];
        let formats = match dtype {
            DType::Int8 | DType::Int4 | DType::Int2 => [&[dtype][..], &widened].concat(),
            _ => vec![dtype],
        };
        let peak = formats.iter().find_map(|format| Some((format, self.peak.get(format)?)));
        let Some((format, peak)) = peak else {
            let fastest = formats.iter().find_map(|format| self.gemm.get(format)?.fastest())?;
            return Some(reached(&fastest, None, OF_PEAK_RATE, |peak, share| peak * share));
        };
        Some(reached(peak, self.achieved_share(*format).as_ref(), OF_PEAK_RATE, |peak, share| peak * share))
    }

    /// The share of the peak that long products were seen to reach. bf16 and f16 use the same
    /// units: where their peaks are equal, the share of one stands for the other. Without a share
    /// of its own, fp8 reaches [`OF_SHARE_FP8`] of theirs.
    fn achieved_share(&self, format: DType) -> Option<Sourced<Ratio>> {
        let shares = &self.achieved.as_ref()?.gemm;
        let peak = |format: DType| self.peak.get(&format).map(|peak| peak.value);
        let of_twin = |twin: DType| shares.get(&twin).filter(|_| peak(format) == peak(twin)).cloned();
        let own = shares.get(&format).cloned();
        own.or_else(|| match format {
            DType::Bf16 => of_twin(DType::F16),
            DType::F16 => of_twin(DType::Bf16),
            DType::Fp8 => shares.get(&DType::Bf16).or_else(|| shares.get(&DType::F16)).and_then(share_of_fp8),
            _ => None,
        })
    }

    /// The bandwidth that streams are expected to reach: the measured one, where there is one.
    pub fn reached_bandwidth(&self) -> Sourced<BytesPerSec> {
        let peak = &self.bandwidth;
        if let Provenance::Measured { .. } = peak.source {
            return peak.clone();
        }
        let achieved = self.achieved.as_ref().and_then(|achieved| achieved.bandwidth.as_ref());
        let documented = if self.inline_ecc { OF_PEAK_WITH_CODES } else { OF_PEAK_BANDWIDTH };
        reached(peak, achieved, documented, |peak, share| peak * share)
    }
}

/// The reached part of a peak: the share that was achieved, or the documented one.
fn reached<T: Copy + Display>(
    peak: &Sourced<T>,
    achieved: Option<&Sourced<Ratio>>,
    documented: f64,
    times: impl Fn(T, f64) -> T,
) -> Sourced<T> {
    let share = achieved.map_or(documented, |share| share.value.get());
    let why = achieved.map_or_else(String::new, |share| format!("; the share: {}", share.source));
    let reason = format!("{share} of the peak of {} ({}){why}", peak.value, peak.source);
    Sourced::estimated(times(peak.value, share), &reason)
}
