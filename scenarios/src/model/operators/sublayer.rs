//! Sublayers: what a plan places as one, and the tensors that belong to each.

use crate::model::experts::Experts;
use crate::model::operators::formats::WeightFormats;
use crate::model::operators::operator::{Buffer, Operator};
use crate::model::transformer::{Architecture, Model, Norm, Positions};
use crate::model::wiring::Block;
use hwprofiles::{Bytes, DType, Elements};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Rows of a matrix are split at multiples of this, so that a part is a contiguous range of the packed weights.
pub const ROW_PANEL: u64 = 32;

/// A group of operators placed as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sublayer {
    /// The token (and position) table, in front of the layers.
    Embed,
    /// Norm and the fused q, k, v projection.
    Qkv,
    /// Rotation, KV append and attention.
    Attention,
    /// Output projection and residual addition.
    Out,
    /// Norm, the fused (gate and) up projection, and the non-linearity.
    FfnUp,
    /// Down projection and residual addition.
    FfnDown,
    /// Norm and the router's scores for each expert.
    Router,
    /// The expert that every token goes to, and residual addition.
    SharedExpert,
    /// The experts that tokens are routed to, and residual addition.
    Experts,
    /// Final norm and the projection to logits, behind the layers.
    Head,
}

impl Sublayer {
    /// The sublayers of a dense layer, in order; for other layers see [`crate::LayerKind::sublayers`].
    pub const DENSE: [Sublayer; 5] =
        [Sublayer::Qkv, Sublayer::Attention, Sublayer::Out, Sublayer::FfnUp, Sublayer::FfnDown];

    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            Sublayer::Embed => "embed",
            Sublayer::Qkv => "qkv",
            Sublayer::Attention => "attention",
            Sublayer::Out => "out",
            Sublayer::FfnUp => "ffn_up",
            Sublayer::FfnDown => "ffn_down",
            Sublayer::Router => "router",
            Sublayer::SharedExpert => "shared_expert",
            Sublayer::Experts => "experts",
            Sublayer::Head => "head",
        }
    }

    /// Its operators in a layer of `model`, in order.
    pub fn operators(self, model: &Model) -> &'static [Operator] {
        match self {
            Sublayer::Embed => &[Operator::Embed],
            Sublayer::Qkv => &[Operator::AttnNorm, Operator::QkvProj],
            Sublayer::Attention => &[Operator::Rotate, Operator::Attention],
            Sublayer::Out => &[Operator::OutProj, Operator::AttnAdd],
            // What attention's norm made is still there.
            Sublayer::FfnUp if model.wiring.block == Block::ParallelOneNorm => {
                &[Operator::UpProj, Operator::Activate]
            }
            Sublayer::FfnUp => &[Operator::FfnNorm, Operator::UpProj, Operator::Activate],
            Sublayer::FfnDown => &[Operator::DownProj, Operator::FfnAdd],
            Sublayer::Router => &[Operator::RouterNorm, Operator::Route],
            Sublayer::SharedExpert => &[Operator::SharedExpert, Operator::SharedAdd],
            Sublayer::Experts => &[Operator::Experts, Operator::ExpertsAdd],
            Sublayer::Head => &[Operator::HeadNorm, Operator::HeadProj],
        }
    }

    /// Whether its vectors begin with those of a norm: the one in front of its matrix, or the one behind it.
    pub fn has_norm(self, model: &Model) -> bool {
        match self {
            Sublayer::Out | Sublayer::FfnDown => model.wiring.norms_behind,
            _ => self.operators(model)[0].writes() == Buffer::Normed,
        }
    }

    /// Its matrix, as (output rows, input columns); attention has none.
    ///
    /// Rows are what may be divided between devices. Those of the experts are whole experts, the most popular
    /// first, and those of the shared expert are its neurons, each with all of its weights: the parts of such a
    /// sublayer are sums of the same output, not columns of it.
    pub fn matrix(self, model: &Model) -> Option<(u64, u64)> {
        match self {
            Sublayer::Embed | Sublayer::Head => Some((model.vocab, model.hidden)),
            Sublayer::Qkv => Some((model.qkv_rows(), model.hidden)),
            Sublayer::Attention => None,
            Sublayer::Out => Some((model.hidden, model.context_width())),
            Sublayer::FfnUp => Some((model.up_width(), model.hidden)),
            Sublayer::FfnDown => Some((model.hidden, model.intermediate)),
            Sublayer::Router => model.experts.as_ref().map(|experts| (experts.count, model.hidden)),
            Sublayer::SharedExpert => model.experts.as_ref().map(|experts| (experts.shared, model.neuron())),
            Sublayer::Experts => {
                model.experts.as_ref().map(|experts| (experts.count, experts.intermediate * model.neuron()))
            }
        }
    }

    /// Columns that its kernels read of each row of activations: those of the matrix, but hidden where a row of it
    /// holds several rows of weights.
    pub fn inputs(self, model: &Model) -> Option<u64> {
        match self {
            Sublayer::SharedExpert | Sublayer::Experts => self.matrix(model).map(|_| model.hidden),
            _ => self.matrix(model).map(|(_, columns)| columns),
        }
    }

    /// Its rows are divided at multiples of this: packed panels of weights, or whole experts.
    pub fn panel(self) -> u64 {
        if self == Sublayer::Experts { 1 } else { ROW_PANEL }
    }

    /// Bytes of the matrix's rows `rows`; those of its norms and biases are [`Sublayer::vector_bytes`].
    pub fn matrix_bytes(self, model: &Model, weights: WeightFormats, rows: &Range<u64>) -> Bytes {
        let (format, count) = (weights.of(self), rows.end - rows.start);
        match (self, &model.experts) {
            // Each expert is two matrices of its own, whose rows are rounded up to whole groups.
            (Sublayer::Experts, Some(experts)) => {
                let front =
                    format.matrix_bytes((model.inner_numbers() - 1) * experts.intermediate, model.hidden);
                (front + format.matrix_bytes(model.hidden, experts.intermediate)) * count
            }
            _ => self.matrix(model).map_or(Bytes::ZERO, |(_, columns)| format.matrix_bytes(count, columns)),
        }
    }

    /// Bytes of norms, biases and position tables: f32, resident with every device that computes the sublayer.
    pub fn vector_bytes(self, model: &Model) -> Bytes {
        let norm = model.hidden * if model.norm == Norm::Layer { 2 } else { 1 };
        let when = |present: bool, count: u64| if present { count } else { 0 };
        let behind = when(model.wiring.norms_behind, norm);
        let learned = matches!(model.positions, Positions::Learned { .. });
        let offset = match model.positions {
            Positions::Learned { offset } => offset,
            _ => 0,
        };
        let latent = model.latent.map_or(0, |latent| latent.q_rank.unwrap_or(0) + latent.kv_rank);
        let sinks = when(model.architecture == Architecture::GptOss, model.heads);
        let experts = |of: fn(&Experts, &Model) -> u64| model.experts.as_ref().map_or(0, |e| of(e, model));
        let count = match self {
            Sublayer::Embed => when(learned, (model.max_positions + offset) * model.hidden),
            Sublayer::Qkv => norm + latent + when(model.qkv_bias, model.qkv_width()),
            Sublayer::Attention => sinks + when(model.qk_norm, 2 * model.head_dim),
            Sublayer::Out => behind + when(model.out_bias, model.hidden),
            Sublayer::FfnUp => {
                let own = when(model.wiring.block != Block::ParallelOneNorm, norm);
                own + when(model.ffn_bias, model.up_width())
            }
            Sublayer::FfnDown => behind + when(model.ffn_bias, model.hidden),
            Sublayer::Router => norm + when(model.ffn_bias, experts(|experts, _| experts.count)),
            Sublayer::SharedExpert => 0,
            Sublayer::Experts => when(model.ffn_bias, experts(biases)),
            Sublayer::Head => norm + when(model.wiring.head_bias, model.vocab),
        };
        DType::F32.bytes(Elements::new(count))
    }
}

impl fmt::Display for Sublayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Numbers in the biases of all experts of a layer.
fn biases(experts: &Experts, model: &Model) -> u64 {
    let in_front = (model.inner_numbers() - 1) * experts.intermediate;
    experts.count * (in_front + model.hidden)
}
