//! LIA (Kim et al., ISCA 2025): each of six sublayers runs on the CPU or on the GPU, with one
//! policy for all layers in prefill and one in decode. Whole layers are then pinned in the GPU
//! memory that is left.
//!
//! T = Σ load + compute + store over the sublayers. Compute is additive, bytes ÷ bandwidth + FLOP ÷
//! rate, on either device. Activations cross the link where neighbours run on different devices.
//! Weights and KV live with the host: they cross the link where the GPU computes on them, and the
//! KV that the GPU makes is stored back.

use super::model_totals::{layer_weights, product, whole_matrix};
use hwprofiles::{Bytes, BytesPerSec, Elements, Flop, FlopPerSec, Seconds};
use scenarios::{Formats, LayerKind, Model, Phase, Step, Sublayer, Workload, kv_bytes};
use std::fmt;

/// LIA's sublayers: QKV, Q·Kᵀ, S·V, Out, FC1, FC2.
const SUBLAYERS: usize = 6;
const QKV: usize = 0;
/// Q·Kᵀ and S·V.
const SCORES: usize = 1;
const VALUES: usize = 2;

/// Which of QKV, Q·Kᵀ, S·V, Out, FC1, FC2 the CPU computes (LIA's 1); the GPU computes the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Policy(pub [bool; SUBLAYERS]);

impl Policy {
    /// (0,0,0,0,0,0)
    pub const ALL_GPU: Self = Self([false; SUBLAYERS]);
    /// (1,1,1,1,1,1)
    pub const ALL_CPU: Self = Self([true; SUBLAYERS]);
    /// (0,1,1,0,0,0)
    pub const ATTENTION_ON_CPU: Self = Self([false, true, true, false, false, false]);

    /// All 64 policies.
    pub fn each() -> impl Iterator<Item = Self> {
        (0..1u32 << SUBLAYERS).map(|bits| Self(std::array::from_fn(|i| bits >> i & 1 == 1)))
    }

    /// Whether the CPU computes `sublayer`. Attention counts as Q·Kᵀ with S·V, experts as FC1.
    pub fn on_cpu(self, sublayer: Sublayer) -> bool {
        let index = match sublayer {
            Sublayer::Embed | Sublayer::Qkv => QKV,
            Sublayer::Attention => SCORES,
            Sublayer::Out => 3,
            Sublayer::FfnUp | Sublayer::Router | Sublayer::SharedExpert | Sublayer::Experts => 4,
            Sublayer::FfnDown | Sublayer::Head => 5,
        };
        self.0[index]
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.map(|cpu| if cpu { "1" } else { "0" });
        write!(f, "({})", bits.join(","))
    }
}

/// The rates of one device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceRates {
    /// Reading its memory.
    pub memory: BytesPerSec,
    /// Matrix products.
    pub matrix: FlopPerSec,
    /// Q·Kᵀ and S·V.
    pub attention: FlopPerSec,
}

/// The rates in LIA's cost form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The host.
    pub cpu: DeviceRates,
    /// The accelerator.
    pub gpu: DeviceRates,
    /// The link, each way.
    pub link: BytesPerSec,
}

impl Rates {
    /// LIA's testbed: 40 cores of Sapphire Rapids with 8 channels of DDR5-4800, an A100 of 40 GB on
    /// PCIe 4.
    ///
    /// Published: bf16 products at 16.6 to 20 TFLOP/s on the CPU, of which the middle is taken, and
    /// at 237 TFLOP/s on the A100; products with a vector at 199 GFLOP/s on the CPU, 19 % of the
    /// A100's; about 260 GB/s of DRAM. The A100's bandwidth is that of its datasheet, 1555 GB/s.
    /// The published thresholds imply 24 GB/s over the link (the nominal 32 GB/s gives 620 where
    /// 858 is printed).
    pub fn testbed(phase: Phase) -> Self {
        let rates = |memory: f64, matrix: f64, vector: f64| DeviceRates {
            memory: BytesPerSec::new(memory),
            matrix: FlopPerSec::new(matrix),
            // A prompt's scores are a product of matrices, one token's a product with a vector.
            attention: FlopPerSec::new(if phase == Phase::Prefill { matrix } else { vector }),
        };
        Self {
            cpu: rates(260e9, 18.3e12, 199e9),
            gpu: rates(1555e9, 237e12, 1047e9),
            link: BytesPerSec::new(24e9),
        }
    }
}

/// The work of one sublayer: its input, its matrices or half of the KV cache, the bytes read of
/// them, and its FLOP.
#[derive(Debug, Clone, Copy)]
struct Term {
    input: Bytes,
    held: Bytes,
    read: Bytes,
    flop: Flop,
}

/// The work of one layer in one step.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    terms: [Term; SUBLAYERS],
    /// Half (K or V) of the cache before the step, and of what the step adds to it.
    past: Bytes,
    new: Bytes,
}

impl Layer {
    /// The work of one layer of `kind` of `model` in `step`. LIA's paper does not treat experts.
    /// Here a mixture, its router and its shared expert are FC1: all are streamed, and the experts
    /// that tokens choose are read. FC2 is then empty.
    pub fn count(model: &Model, formats: &Formats, kind: LayerKind, step: &Step) -> Self {
        let (rows, length) = (step.rows(), step.past_tokens + step.new_tokens);
        let activations = |columns: u64| formats.activations.bytes(Elements::product(&[rows, columns]));
        let cache = |tokens: u64| Bytes::new(kv_bytes(model, formats, step.batch, tokens).get() / 2);
        let products = |sublayers: &[Sublayer], columns: u64| {
            let mut term =
                Term { input: activations(columns), held: Bytes::ZERO, read: Bytes::ZERO, flop: Flop::ZERO };
            for &sublayer in sublayers {
                let Some(work) = product(model, formats, step, sublayer) else { continue };
                term.held += whole_matrix(model, formats, sublayer);
                term.read += work.weights;
                term.flop += work.flop;
            }
            term
        };
        // Every position counts, also those above the diagonal.
        let width = model.context_width();
        let flop = Flop::new(2 * u128::from(rows) * u128::from(length) * u128::from(width));
        let (held, read) = (cache(length), cache(length));
        let attention = |columns| Term { input: activations(columns), held, read, flop };
        let has = |sublayer: Sublayer| kind.sublayers().contains(&sublayer);
        let (up, down) = if has(Sublayer::FfnUp) {
            (products(&[Sublayer::FfnUp], model.hidden), products(&[Sublayer::FfnDown], model.intermediate))
        } else {
            let of_mixture =
                |s: &&Sublayer| matches!(s, Sublayer::Router | Sublayer::SharedExpert | Sublayer::Experts);
            let mixture: Vec<_> = kind.sublayers().iter().filter(of_mixture).copied().collect();
            (products(&mixture, model.hidden), products(&[], model.hidden))
        };
        Self {
            terms: [
                products(&[Sublayer::Qkv], model.hidden),
                attention(width),
                attention(model.heads * length),
                products(&[Sublayer::Out], width),
                up,
                down,
            ],
            past: cache(step.past_tokens),
            new: cache(step.new_tokens),
        }
    }

    /// FLOP of Q·Kᵀ and S·V.
    pub fn attention_flop(&self) -> Flop {
        self.terms[SCORES].flop + self.terms[VALUES].flop
    }

    /// The time of the layer under `policy`.
    pub fn time(&self, rates: &Rates, policy: Policy) -> Seconds {
        let mut crossing = Bytes::ZERO;
        let mut computing = Seconds::ZERO;
        for (index, term) in self.terms.iter().enumerate() {
            let on_cpu = policy.0[index];
            let device = if on_cpu { &rates.cpu } else { &rates.gpu };
            let attention = index == SCORES || index == VALUES;
            let rate = if attention { device.attention } else { device.matrix };
            computing += (term.input + term.read) / device.memory + term.flop / rate;
            // The layer before follows the same policy.
            if on_cpu != policy.0[(index + SUBLAYERS - 1) % SUBLAYERS] {
                crossing += term.input;
            }
            if on_cpu {
                continue;
            }
            crossing += match index {
                // The new keys and values are stored with the host.
                QKV => term.held + self.new + self.new,
                SCORES | VALUES if policy.0[QKV] => self.past + self.new,
                SCORES | VALUES => self.past,
                _ => term.held,
            };
        }
        computing + crossing / rates.link
    }

    /// The fastest policy; of equally fast ones the first in [`Policy::each`].
    pub fn policy(&self, rates: &Rates) -> Policy {
        self.fastest(rates, Policy::each())
    }

    /// The fastest policy with Q·Kᵀ and S·V on one device, as in all of LIA's best policies.
    pub fn undivided_policy(&self, rates: &Rates) -> Policy {
        self.fastest(rates, Policy::each().filter(|policy| policy.0[SCORES] == policy.0[VALUES]))
    }

    fn fastest(&self, rates: &Rates, policies: impl Iterator<Item = Policy>) -> Policy {
        let timed = policies.map(|policy| (self.time(rates, policy), policy));
        timed.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(Policy::ALL_CPU, |(_, policy)| policy)
    }
}

/// Bytes on a GPU that CUDA's context and libraries take. Not published; half a GiB is usual.
const CONTEXT: Bytes = Bytes::new(1 << 29);
/// Layers in staging while weights stream: one is computed, one is fetched.
const STAGED: u64 = 2;

/// The number of layers that fit, with their KV, into a GPU of `capacity` beside the token table
/// and CUDA. Where the GPU also computes the prefill of other layers, two staged layers and the
/// activations, scores and probabilities of one of `minibatches` need room too.
///
/// LIA's scripts give a percentage that its authors chose by hand; this is the number of layers
/// that could have been pinned.
pub fn pinned_layers(
    model: &Model,
    formats: &Formats,
    workload: &Workload,
    prefill: Policy,
    minibatches: u64,
    capacity: Bytes,
) -> u64 {
    let weights = Bytes::new(layer_weights(model, formats).get() / model.layers.max(1));
    let mut taken =
        CONTEXT + whole_matrix(model, formats, Sublayer::Embed) + Sublayer::Embed.vector_bytes(model);
    if prefill == Policy::ALL_GPU {
        let batch = workload.batch.div_ceil(minibatches.max(1));
        let tokens = workload.prompt_tokens;
        let columns = 2 * model.hidden + model.qkv_width() + model.up_width() + 2 * model.heads * tokens;
        let activations = formats.activations.bytes(Elements::product(&[batch, tokens, columns]));
        taken += weights * STAGED + activations;
    }
    let layer = weights + kv_bytes(model, formats, workload.batch, workload.context());
    (capacity.saturating_sub(taken).get() / layer.get().max(1)).min(model.layers)
}
