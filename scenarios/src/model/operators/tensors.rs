//! Tensors of each sublayer: the shapes of matrices, and the bytes of matrices and vectors.

use crate::model::architecture::Norm;
use crate::model::experts::Experts;
use crate::model::formats::weight_format::WeightFormat;
use crate::model::mixer::Mixer;
use crate::model::operators::formats::WeightFormats;
use crate::model::operators::products::Product;
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
    ///
    /// A sublayer of several matrices counts as one with `hidden` columns and about as many
    /// numbers. It is not divided ([`Sublayer::is_divisible`]).
    pub fn matrix(self, model: &Model) -> Option<(u64, u64)> {
        let experts = model.experts.as_ref();
        match self {
            Sublayer::Attention => None,
            Sublayer::SharedExpert => experts.map(|experts| (experts.shared, model.neuron_parameters())),
            Sublayer::Experts => experts.map(|experts| (experts.count, model.expert_parameters())),
            Sublayer::Router if experts.is_none() => None,
            _ => match &self.own_products(model)[..] {
                [one] => Some((one.rows, one.columns)),
                several => {
                    let numbers: u64 = several.iter().map(Product::numbers).sum();
                    Some((numbers.div_ceil(model.hidden), model.hidden))
                }
            },
        }
    }

    /// Columns of activations that its kernels read for each row: as many as the matrix has, but
    /// `hidden` if one of its rows holds several rows of weights.
    pub fn inputs(self, model: &Model) -> Option<u64> {
        match self {
            Sublayer::SharedExpert => self.matrix(model).map(|_| model.hidden),
            Sublayer::Experts => self.matrix(model).map(|_| model.expert_width()),
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
                let width = model.expert_width();
                let front =
                    format.matrix_bytes((model.neuron_activations() - 1) * experts.intermediate, width);
                front + format.matrix_bytes(width, experts.intermediate)
            }),
            (Sublayer::SharedExpert, Some(_)) => shared_expert_bytes(model, format, rows),
            _ if self.is_single(model) => self.matrix(model).map_or(Bytes::ZERO, |(_, columns)| {
                format.bytes_of_rows(rows, self.row_bytes(model, columns))
            }),
            _ => self.several_bytes(model, format, rows),
        }
    }

    /// Bytes of a row of a matrix with this many columns. A token's embedding for each layer is in
    /// a table beside that of tokens, so its rows have scales of their own.
    fn row_bytes(self, model: &Model, columns: u64) -> impl Fn(DType) -> Bytes + use<> {
        let beside = match self {
            Sublayer::Embed if columns == model.hidden + model.layer_embeddings() => model.layer_embeddings(),
            _ => 0,
        };
        move |format| format.matrix_bytes(1, columns - beside) + format.matrix_bytes(1, beside)
    }

    /// Bytes of the share `rows` of several matrices that count as one.
    fn several_bytes(self, model: &Model, format: WeightFormat, rows: &Range<u64>) -> Bytes {
        let products = self.own_products(model);
        let row = |columns| self.row_bytes(model, columns);
        let all: Bytes = products.iter().map(|p| format.bytes_of_rows(&(0..p.rows), row(p.columns))).sum();
        let of = self.matrix(model).map_or(0, |(rows, _)| rows).max(1);
        let until = |row: u64| u128::from(all.get()) * u128::from(row.min(of)) / u128::from(of);
        // It is a share of `all`.
        Bytes::new((until(rows.end) - until(rows.start)) as u64)
    }

    /// Bytes of norms, biases and position tables. They are f32, and every device that computes the
    /// sublayer has a copy.
    pub fn vector_bytes(self, model: &Model) -> Bytes {
        let norm = model.hidden * if model.norm == Norm::Layer { 2 } else { 1 };
        // A mixer of low rank norms all streams.
        let front = model.wiring.stream_rank.map_or(norm, |_| model.streams_width());
        let count_if = |present: bool, count: u64| if present { count } else { 0 };
        let behind = count_if(model.wiring.norms_behind, norm);
        let beside = model.wiring.norms_beside;
        let learned = matches!(model.positions, Positions::Learned { .. });
        let offset = match model.positions {
            Positions::Learned { offset } => offset,
            _ => 0,
        };
        let experts = model.experts.as_ref();
        let router = experts.filter(|experts| experts.router_bias || model.ffn_bias);
        let count = match self {
            Sublayer::Embed => {
                let joined = count_if(model.wiring.module_behind.is_some(), 2 * norm);
                joined + count_if(learned, (model.max_positions + offset) * model.hidden)
            }
            Sublayer::Qkv => front + model.front_vectors(),
            Sublayer::Attention => model.attention_vectors(),
            Sublayer::Out => behind + count_if(model.out_bias, model.hidden),
            Sublayer::FfnUp => {
                let own = count_if(model.wiring.block != BlockOrder::ParallelOneNorm, front);
                own + count_if(model.ffn_bias, model.up_width())
            }
            Sublayer::FfnDown => {
                let own = model.wiring.layer_embedding.map_or(0, |width| norm + width);
                let scale = count_if(model.wiring.layer_scale, 1);
                behind + count_if(model.ffn_bias, model.hidden) + own + scale + model.correction_vectors()
            }
            Sublayer::Router if beside => norm,
            Sublayer::Router => front + behind + router.map_or(0, |experts| experts.count),
            Sublayer::SharedExpert => {
                let gate = experts.is_some_and(|experts| experts.shared_gate);
                count_if(beside, 2 * norm) + count_if(gate, model.hidden)
            }
            Sublayer::Experts => experts.map_or(0, |experts| {
                let own = count_if(beside, 3 * norm + experts.count);
                let scale = count_if(model.wiring.layer_scale, 1);
                count_if(model.ffn_bias, biases(experts, model)) + own + scale
            }),
            Sublayer::Head => front + count_if(model.wiring.head_bias, model.vocab),
        };
        DType::F32.bytes(Elements::new(count))
    }
}

impl Model {
    /// Numbers in the norms and biases in front of a layer's mixer, without the
    /// layer's own norm.
    fn front_vectors(&self) -> u64 {
        let bias = if self.qkv_bias { self.qkv_width() } else { 0 };
        let streams = self.wiring.predicted_streams;
        let prediction = streams.map_or(0, |count| self.stream_router(count) + count.pow(3));
        let low_rank = self.wiring.low_rank_residual.map_or(0, |_| self.hidden);
        // Norms of keys, streams and values, and a convolution over the values of all streams.
        let ngrams = self.wiring.ngrams.map_or(0, |ngrams| (3 + ngrams.taps) * self.streams_width());
        bias + prediction
            + low_rank
            + ngrams
            + match self.mixer {
                Mixer::Attention => 0,
                Mixer::Latent(latent) => latent.q_rank.unwrap_or(0) + latent.kv_rank,
                Mixer::Compressed(compressed) => {
                    let ratio = compressed.ratio.unwrap_or(0);
                    let compressor = compressed.sets * self.head_dim * ratio + self.head_dim;
                    let index = self.index.filter(|index| index.computes);
                    let index = index.map_or(0, |index| index.dim * (compressed.sets * ratio + 1));
                    compressed.q_rank + self.head_dim + index + if ratio > 0 { compressor } else { 0 }
                }
                Mixer::Recurrent(_) => 0,
            }
    }

    /// Numbers of the router of `streams` predicted streams, and of the norm in front of it. A
    /// layer keeps it twice: for the prediction in front, and for the correction behind.
    fn stream_router(&self, streams: u64) -> u64 {
        (streams + 1) * self.hidden
    }

    /// Numbers that correct predicted streams behind a layer.
    fn correction_vectors(&self) -> u64 {
        let streams = self.wiring.predicted_streams;
        streams.map_or(0, |count| self.stream_router(count) + count.pow(2) + self.hidden)
    }

    /// Numbers in attention's own vectors: sinks, the norms of q and k, the norm of an indexer, the
    /// expansion of latent attention, the convolutions and decays of a recurrence.
    fn attention_vectors(&self) -> u64 {
        let sinks = if self.wiring.sinks { self.heads } else { 0 };
        let index = self.index.filter(|index| index.computes && !matches!(self.mixer, Mixer::Compressed(_)));
        let norms = match (self.qk_norm, self.wiring.norms_whole_qk) {
            (false, _) => 0,
            (true, false) if self.wiring.shares_kv => self.head_dim,
            (true, false) => 2 * self.head_dim,
            (true, true) => self.heads * self.head_dim + self.kv_width(),
        };
        let own = match self.mixer {
            Mixer::Latent(latent) => self.heads * (latent.nope_dim + latent.v_dim) * latent.kv_rank,
            Mixer::Recurrent(recurrence) => recurrence.vectors(),
            Mixer::Attention | Mixer::Compressed(_) => 0,
        };
        own + sinks + norms + index.map_or(0, |index| 2 * index.dim)
    }

    /// Width of the vectors that a routed expert reads and writes.
    pub fn expert_width(&self) -> u64 {
        self.experts.as_ref().and_then(|experts| experts.latent).unwrap_or(self.hidden)
    }

    /// Numbers of one routed expert's matrices.
    pub fn expert_parameters(&self) -> u64 {
        let intermediate = self.experts.as_ref().map_or(0, |experts| experts.intermediate);
        intermediate * self.neuron_activations() * self.expert_width()
    }
}

/// Bytes of the neurons `rows` of a shared expert: their rows of gate and up, and their columns of
/// down, which the formats that we pack round up to whole groups, or give a scale to each row.
fn shared_expert_bytes(model: &Model, format: WeightFormat, rows: &Range<u64>) -> Bytes {
    let (front, count) = (model.neuron_activations() - 1, rows.end - rows.start);
    match format.one() {
        Some(
            dtype @ (DType::F32
            | DType::Bf16
            | DType::Fp8
            | DType::Fp8Block
            | DType::Int8
            | DType::Int4
            | DType::Nvfp4),
        ) => dtype.matrix_bytes(front * count, model.hidden) + dtype.matrix_bytes(model.hidden, count),
        _ => format.bytes_of_rows(rows, |dtype| dtype.matrix_bytes(front + 1, model.hidden)),
    }
}

/// Numbers in the biases of all experts of one layer.
fn biases(experts: &Experts, model: &Model) -> u64 {
    let in_front = (model.neuron_activations() - 1) * experts.intermediate;
    experts.count * (in_front + model.hidden)
}
