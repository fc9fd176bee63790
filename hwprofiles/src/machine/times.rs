//! The times of a device's operators and of a link's transfers.
//!
//! Times are interpolated, and rates are not: between two measured points *time* is close to linear
//! (a fixed part plus a part per row), while a rate is not. Outside the measured region the
//! efficiency at its boundary is used, and the answer says so
//! ([`Basis::Extrapolated`]).

use crate::machine::device::Device;
use crate::machine::quantised::VECTOR_ROWS;
use crate::rates::{AttentionShape, Basis, Bound, Estimate, Operation, Phase};
use crate::units::{Bytes, DType, Flop, Ratio, Seconds};

/// A rate that was not measured. The message says which, and how to measure it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "device '{device}' has no {rate} rate for {dtype} (it has: {known}); measure it with `fulcrum bench`, \
     or choose a number format that it has"
)]
pub struct MissingRate {
    /// The device.
    pub device: String,
    /// What is missing: "gemm", "decode attention", "prefill attention".
    pub rate: &'static str,
    /// The wanted number format.
    pub dtype: DType,
    /// The formats that the device has, comma-separated, or "none".
    pub known: String,
}

impl MissingRate {
    pub(crate) fn new(
        device: &Device,
        rate: &'static str,
        dtype: DType,
        has: impl Fn(DType) -> bool,
    ) -> Self {
        let known: Vec<_> = DType::ALL.into_iter().filter(|&d| has(d)).map(DType::name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self { device: device.name.clone(), rate, dtype, known }
    }
}

impl Device {
    /// The time of y[m, n] = x[m, k] · W[n, k]ᵀ with `weights` in the device's own memory, without
    /// [`Device::launch`]. Zero where a dimension is zero. A quantised format without a measured
    /// table costs what the device's [`Dequantisation`](crate::Dequantisation) says.
    ///
    /// # Errors
    /// The format has no table, and the device states no cost of dequantisation.
    pub fn gemm_time(&self, weights: DType, m: u64, n: u64, k: u64) -> Result<Estimate, MissingRate> {
        self.product_time(weights, [m, n, k], Ratio::ONE)
            .map(|estimate| self.as_run(weights, [m, k], estimate))
    }

    /// The time of an elementwise operator that reads and writes `bytes` of activations, without
    /// [`Device::launch`]: bytes ÷ rate, and with its launch at least a small kernel's time.
    pub fn elementwise_time(&self, bytes: Bytes) -> Estimate {
        self.whole_kernel(self.streaming_time(bytes))
    }

    /// The time in which a kernel that computes little reads and writes `bytes`, without its
    /// launch.
    pub fn streaming_time(&self, bytes: Bytes) -> Estimate {
        match bytes {
            Bytes::ZERO => Estimate::ZERO,
            bytes => {
                let basis = Basis::Interpolated.sourced(&self.elementwise.source);
                Estimate::with_default_band(bytes / self.elementwise.value, Bound::Memory, basis)
            }
        }
    }

    /// A product of the matrices of several experts in one kernel, for `tokens` in all: `product`,
    /// or the time at the most that an engine's grouped kernels reach, where that is longer.
    pub fn as_grouped(&self, weights: DType, size: [u64; 3], tokens: u64, product: Estimate) -> Estimate {
        let product = self.in_tiles(weights, size, tokens, product);
        let of_blocks = self.details.grouped_block_product.as_ref().filter(|_| weights == DType::Fp8Block);
        let share = of_blocks.or(self.details.grouped_product.as_ref());
        let (Some(share), Some(fastest)) = (share, self.fastest_product(weights)) else { return product };
        let flop = Flop::new(2 * size.map(u128::from).iter().product::<u128>());
        let time = flop / (fastest.value * share.value.get());
        match time > product.time {
            true => Estimate::with_default_band(time, Bound::Compute, Basis::Estimated),
            false => product,
        }
    }

    /// A product as an engine runs it: no shorter than its shortest kernel, unless it was measured,
    /// and with a kernel that rounds the [m, k] activations to fp8 where it has one.
    pub(super) fn as_run(&self, weights: DType, [m, k]: [u64; 2], product: Estimate) -> Estimate {
        let product = match product.basis {
            Basis::Measured | Basis::Interpolated => product,
            Basis::Extrapolated | Basis::Estimated => self.whole_kernel(product),
        };
        // Few rows are rounded within the time of a launch.
        let is_rounded = weights.is_quantised() && m > VECTOR_ROWS;
        if let Some(rounding) = self.details.rounding.as_ref().filter(|_| is_rounded) {
            return product.then(&self.streaming_time(rounding.value * m.saturating_mul(k)));
        }
        let is_fp8 = matches!(weights, DType::Fp8 | DType::Fp8Block);
        if !is_fp8 || self.details.quantises_activations != Some(true) {
            return product;
        }
        // 16 bits are read and 8 are written.
        let bytes = Bytes::new(m.saturating_mul(k).saturating_mul(3));
        product.then(&self.elementwise_time(bytes))
    }

    /// The estimate, or the device's shortest kernel where that takes longer. The launch that every
    /// kernel costs is part of the shortest kernel.
    pub(super) fn whole_kernel(&self, estimate: Estimate) -> Estimate {
        let Some(kernel) = &self.details.kernel else { return estimate };
        let shortest = kernel.value - self.launch.value;
        // The time is a mean over several kernels, so this one was not measured itself.
        let basis = estimate.basis.max(Basis::Interpolated.sourced(&kernel.source));
        match estimate.time > Seconds::ZERO && shortest > estimate.time {
            true => Estimate::with_default_band(shortest, Bound::Launch, basis),
            false => estimate,
        }
    }
}

impl Device {
    /// The time of the attention of one layer over a KV cache in `kv` in the device's own memory,
    /// without [`Device::launch`]. Zero for an empty shape.
    pub fn attention_time(&self, kv: DType, shape: &AttentionShape) -> Result<Estimate, MissingRate> {
        if shape.is_empty() {
            return Ok(Estimate::ZERO);
        }
        let shape = &self.read_shape(shape);
        let has = |d| self.attention.get(&d).is_some_and(|rates| rates.knows(shape.phase));
        let rate = match shape.phase {
            Phase::Decode => "decode attention",
            Phase::Prefill => "prefill attention",
        };
        let estimate = self.attention.get(&kv).and_then(|rates| rates.time(shape));
        let estimate = estimate.or_else(|| self.attention_like_another(kv, shape));
        let estimate = estimate.ok_or_else(|| MissingRate::new(self, rate, kv, has))?;
        Ok(self.with_scores(shape, self.read_by_heads(kv, shape, estimate)))
    }

    /// The shape whose cache decode attention reads: one KV head for each query head where an
    /// engine's kernel does not share what it reads among the heads of a group.
    fn read_shape(&self, shape: &AttentionShape) -> AttentionShape {
        let is_read_by_head = shape.phase == Phase::Decode && self.details.grouped_attention == Some(false);
        let kv_heads = if is_read_by_head { shape.heads.max(shape.kv_heads) } else { shape.kv_heads };
        AttentionShape { kv_heads, ..*shape }
    }

    /// The estimate, and the scores of a prompt where they move through memory: all of them, those
    /// that the causal mask hides too.
    fn with_scores(&self, shape: &AttentionShape, estimate: Estimate) -> Estimate {
        let traffic = self.details.score_traffic.as_ref().filter(|_| shape.phase == Phase::Prefill);
        let Some(traffic) = traffic else { return estimate };
        let scores = shape.batch * shape.new_tokens * shape.tokens() * shape.heads;
        estimate.then(&self.streaming_time(traffic.value * scores))
    }
}

impl Operation {
    /// The time of one call on `device`.
    pub fn time_on(&self, device: &Device) -> Result<Estimate, MissingRate> {
        match self {
            Operation::Gemm { dtype, m, n, k } => device.gemm_time(*dtype, *m, *n, *k),
            Operation::Attention { kv, shape } => device.attention_time(*kv, shape),
        }
    }
}
