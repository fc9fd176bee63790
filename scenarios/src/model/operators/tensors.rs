//! Tensors of each sublayer: the shapes of matrices, and the bytes of matrices and vectors.

use crate::model::architecture::{Architecture, Norm};
use crate::model::experts::Experts;
use crate::model::operators::formats::WeightFormats;
use crate::model::operators::sublayer::Sublayer;
use crate::model::positions::Positions;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;
use hwprofiles::{Bytes, DType, Elements};
use std::ops::Range;

/// A matrix is divided at multiples of this many rows, so that each part is one contiguous range of
/// the packed weights.
pub const ROW_PANEL: u64 = 32;

impl Sublayer {
    /// Its matrix, as (output rows, input columns); attention has none.
    ///
    /// Rows can be divided between devices. A row of the experts is a whole expert, the most
    /// popular first. A row of the shared expert is a neuron with all of its weights. Parts of
    /// these two sublayers give partial sums of the output, not columns of it.
    pub fn matrix(self, model: &Model) -> Option<(u64, u64)> {
        match self {
            Sublayer::Embed | Sublayer::Head => Some((model.vocab, model.hidden)),
            Sublayer::Qkv => Some((model.qkv_rows(), model.hidden)),
            Sublayer::Attention => None,
            Sublayer::Out => Some((model.hidden, model.context_width())),
            Sublayer::FfnUp => Some((model.up_width(), model.hidden)),
            Sublayer::FfnDown => Some((model.hidden, model.intermediate)),
            Sublayer::Router => model.experts.as_ref().map(|experts| (experts.count, model.hidden)),
            Sublayer::SharedExpert => {
                model.experts.as_ref().map(|experts| (experts.shared, model.neuron_parameters()))
            }
            Sublayer::Experts => model
                .experts
                .as_ref()
                .map(|experts| (experts.count, experts.intermediate * model.neuron_parameters())),
        }
    }

    /// Columns of activations that its kernels read for each row: as many as the matrix has, but
    /// `hidden` if one of its rows holds several rows of weights.
    pub fn inputs(self, model: &Model) -> Option<u64> {
        match self {
            Sublayer::SharedExpert | Sublayer::Experts => self.matrix(model).map(|_| model.hidden),
            _ => self.matrix(model).map(|(_, columns)| columns),
        }
    }

    /// Its rows are divided at multiples of this: packed panels of weights, or single experts.
    pub fn panel(self) -> u64 {
        if self == Sublayer::Experts { 1 } else { ROW_PANEL }
    }

    /// Bytes of rows `rows` of the matrix, without norms and biases ([`Sublayer::vector_bytes`]).
    pub fn matrix_bytes(self, model: &Model, weights: WeightFormats, rows: &Range<u64>) -> Bytes {
        let format = weights.for_sublayer(self);
        match (self, &model.experts) {
            // Each expert has two matrices; their rows are rounded up to whole quantisation groups.
            (Sublayer::Experts, Some(experts)) => format.bytes_of_rows(rows, |format| {
                let front = format
                    .matrix_bytes((model.neuron_activations() - 1) * experts.intermediate, model.hidden);
                front + format.matrix_bytes(model.hidden, experts.intermediate)
            }),
            _ => self.matrix(model).map_or(Bytes::ZERO, |(_, columns)| {
                format.bytes_of_rows(rows, |format| format.matrix_bytes(1, columns))
            }),
        }
    }

    /// Bytes of norms, biases and position tables. They are f32, and every device that computes the
    /// sublayer has a copy.
    pub fn vector_bytes(self, model: &Model) -> Bytes {
        let norm = model.hidden * if model.norm == Norm::Layer { 2 } else { 1 };
        let count_if = |present: bool, count: u64| if present { count } else { 0 };
        let behind = count_if(model.wiring.norms_behind, norm);
        let learned = matches!(model.positions, Positions::Learned { .. });
        let offset = match model.positions {
            Positions::Learned { offset } => offset,
            _ => 0,
        };
        let latent = model.latent.map_or(0, |latent| latent.q_rank.unwrap_or(0) + latent.kv_rank);
        let sinks = count_if(model.architecture == Architecture::GptOss, model.heads);
        let experts =
            |count: fn(&Experts, &Model) -> u64| model.experts.as_ref().map_or(0, |e| count(e, model));
        let count = match self {
            Sublayer::Embed => count_if(learned, (model.max_positions + offset) * model.hidden),
            Sublayer::Qkv => norm + latent + count_if(model.qkv_bias, model.qkv_width()),
            Sublayer::Attention => sinks + count_if(model.qk_norm, 2 * model.head_dim),
            Sublayer::Out => behind + count_if(model.out_bias, model.hidden),
            Sublayer::FfnUp => {
                let own = count_if(model.wiring.block != BlockOrder::ParallelOneNorm, norm);
                own + count_if(model.ffn_bias, model.up_width())
            }
            Sublayer::FfnDown => behind + count_if(model.ffn_bias, model.hidden),
            Sublayer::Router => norm + count_if(model.ffn_bias, experts(|experts, _| experts.count)),
            Sublayer::SharedExpert => 0,
            Sublayer::Experts => count_if(model.ffn_bias, experts(biases)),
            Sublayer::Head => norm + count_if(model.wiring.head_bias, model.vocab),
        };
        DType::F32.bytes(Elements::new(count))
    }
}

/// Numbers in the biases of all experts of one layer.
fn biases(experts: &Experts, model: &Model) -> u64 {
    let in_front = (model.neuron_activations() - 1) * experts.intermediate;
    experts.count * (in_front + model.hidden)
}
