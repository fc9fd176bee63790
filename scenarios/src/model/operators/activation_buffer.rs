//! Activations: the buffers through which operators hand results to each other.

use crate::model::operators::formats::Formats;
use crate::model::transformer::Model;
use hwprofiles::{Bytes, DType, Elements};
use serde::{Deserialize, Serialize};

/// An activation that one operator writes and others read: \[rows, columns\], row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationBuffer {
    /// Token ids.
    Tokens,
    /// The residual stream: hidden columns, or several times as many with hyper-connections.
    Residual,
    /// A normed residual, hidden columns.
    Normed,
    /// q, k, v side by side.
    Qkv,
    /// The attention's output.
    Context,
    /// The next summand of the residual, hidden columns.
    Projected,
    /// (Gate and) up.
    Up,
    /// The non-linearity's output, intermediate columns.
    Inner,
    /// One row per sequence, vocab columns.
    Logits,
    /// The router's scores, one column for each expert.
    Routes,
    /// The shared expert's output, hidden columns.
    Shared,
}

impl ActivationBuffer {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            ActivationBuffer::Tokens => "tokens",
            ActivationBuffer::Residual => "residual",
            ActivationBuffer::Normed => "normed",
            ActivationBuffer::Qkv => "qkv",
            ActivationBuffer::Context => "context",
            ActivationBuffer::Projected => "projected",
            ActivationBuffer::Up => "up",
            ActivationBuffer::Inner => "inner",
            ActivationBuffer::Logits => "logits",
            ActivationBuffer::Routes => "routes",
            ActivationBuffer::Shared => "shared",
        }
    }

    /// The most columns that it has in any layer of `model`.
    pub fn most_columns(self, model: &Model) -> u64 {
        let shapes = model.shapes().iter().map(|shape| self.columns(shape));
        shapes.fold(self.columns(model), u64::max)
    }

    /// Columns in a layer of `model`'s shape.
    pub fn columns(self, model: &Model) -> u64 {
        match self {
            ActivationBuffer::Tokens => 1,
            ActivationBuffer::Residual => model.streams_width(),
            ActivationBuffer::Normed | ActivationBuffer::Projected | ActivationBuffer::Shared => model.hidden,
            ActivationBuffer::Qkv => model.qkv_width(),
            ActivationBuffer::Context => model.context_width(),
            ActivationBuffer::Up => model.up_width(),
            ActivationBuffer::Inner => model.intermediate,
            ActivationBuffer::Logits => model.vocab,
            ActivationBuffer::Routes => model.experts.as_ref().map_or(0, |experts| experts.count),
        }
    }

    /// Bytes of `rows` rows with `columns` columns each.
    pub fn bytes(self, formats: &Formats, rows: u64, columns: u64) -> Bytes {
        let dtype = if self == ActivationBuffer::Tokens { DType::F32 } else { formats.activations };
        dtype.bytes(Elements::product(&[rows, columns]))
    }
}
