//! Sublayers: what a plan places as one, and the tensors that belong to each.

use crate::model::{Model, Norm, Positions};
use crate::operator::Operator;
use hwprofiles::{Bytes, DType, Elements};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

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
    /// Final norm and the projection to logits, behind the layers.
    Head,
}

impl Sublayer {
    /// The sublayers of one layer, in order.
    pub const LAYER: [Sublayer; 5] =
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
            Sublayer::Head => "head",
        }
    }

    /// Its operators, in order.
    pub fn operators(self) -> &'static [Operator] {
        match self {
            Sublayer::Embed => &[Operator::Embed],
            Sublayer::Qkv => &[Operator::AttnNorm, Operator::QkvProj],
            Sublayer::Attention => &[Operator::Rotate, Operator::Attention],
            Sublayer::Out => &[Operator::OutProj, Operator::AttnAdd],
            Sublayer::FfnUp => &[Operator::FfnNorm, Operator::UpProj, Operator::Activate],
            Sublayer::FfnDown => &[Operator::DownProj, Operator::FfnAdd],
            Sublayer::Head => &[Operator::HeadNorm, Operator::HeadProj],
        }
    }

    /// Its matrix, as (output rows, input columns); attention has none.
    pub fn matrix(self, model: &Model) -> Option<(u64, u64)> {
        match self {
            Sublayer::Embed | Sublayer::Head => Some((model.vocab, model.hidden)),
            Sublayer::Qkv => Some((model.qkv_width(), model.hidden)),
            Sublayer::Attention => None,
            Sublayer::Out => Some((model.hidden, model.context_width())),
            Sublayer::FfnUp => Some((model.up_width(), model.hidden)),
            Sublayer::FfnDown => Some((model.hidden, model.intermediate)),
        }
    }

    /// Bytes of the matrix's rows `rows`; those of its norms and biases are [`Sublayer::vector_bytes`].
    pub fn matrix_bytes(self, model: &Model, weights: DType, rows: &Range<u64>) -> Bytes {
        match self.matrix(model) {
            Some((_, columns)) => weights.matrix_bytes(rows.end - rows.start, columns),
            None => Bytes::ZERO,
        }
    }

    /// Bytes of norms, biases and position tables: f32, resident with every device that computes the sublayer.
    pub fn vector_bytes(self, model: &Model) -> Bytes {
        let norm = model.hidden * if model.norm == Norm::Layer { 2 } else { 1 };
        let when = |present: bool, count: u64| if present { count } else { 0 };
        let learned = matches!(model.positions, Positions::Learned { .. });
        let offset = match model.positions {
            Positions::Learned { offset } => offset,
            Positions::Rotary { .. } => 0,
        };
        let count = match self {
            Sublayer::Embed => when(learned, (model.max_positions + offset) * model.hidden),
            Sublayer::Qkv => norm + when(model.qkv_bias, model.qkv_width()),
            Sublayer::Attention => when(model.qk_norm, 2 * model.head_dim),
            Sublayer::Out => when(model.out_bias, model.hidden),
            Sublayer::FfnUp => norm + when(model.ffn_bias, model.up_width()),
            Sublayer::FfnDown => when(model.ffn_bias, model.hidden),
            Sublayer::Head => norm,
        };
        DType::F32.bytes(Elements::new(count))
    }
}

impl fmt::Display for Sublayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
