//! A layer as operators.
//!
//! One forward pass (a *step*) is `embed`, then the operators of each layer, then `head_norm` and
//! `head`. Operators hand activations to each other through named buffers ([`Buffer`]); which device
//! computes them, where, is the plan's choice and not known here.

use crate::model::operators::formats::WeightFormats;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::{Bytes, DType, Elements, Phase};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// One forward pass over a batch of equal sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Prefill or decode.
    pub phase: Phase,
    /// Sequences.
    pub batch: u64,
    /// Tokens that enter, per sequence.
    pub new_tokens: u64,
    /// Tokens already in the KV cache, per sequence.
    pub past_tokens: u64,
}

impl Step {
    /// The prefill of a whole prompt.
    pub fn prefill(batch: u64, prompt_tokens: u64) -> Self {
        Self { phase: Phase::Prefill, batch, new_tokens: prompt_tokens, past_tokens: 0 }
    }

    /// The decode step that follows `past_tokens` tokens.
    pub fn decode(batch: u64, past_tokens: u64) -> Self {
        Self { phase: Phase::Decode, batch, new_tokens: 1, past_tokens }
    }

    /// The step that checks `new_tokens` of each sequence after `past_tokens`.
    pub fn check(batch: u64, new_tokens: u64, past_tokens: u64) -> Self {
        Self { new_tokens, ..Self::decode(batch, past_tokens) }
    }

    /// Rows whose next token is wanted: of a prompt the last token's, in decode every token's.
    pub fn sampled(&self) -> u64 {
        match self.phase {
            Phase::Prefill => self.batch,
            Phase::Decode => self.rows(),
        }
    }

    /// Rows of every activation inside the layers: batch · new tokens.
    pub fn rows(&self) -> u64 {
        self.batch * self.new_tokens
    }
}

/// Number formats of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Formats {
    /// Matrices. Norm weights and biases are always f32.
    pub weights: WeightFormats,
    /// The KV cache.
    pub kv: DType,
    /// Everything between operators.
    pub activations: DType,
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weights {}, kv {}, activations {}", self.weights, self.kv, self.activations)
    }
}

/// One thing that is computed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Tokens → residual.
    Embed,
    /// Residual → normed.
    AttnNorm,
    /// Normed → qkv, bias included.
    QkvProj,
    /// q/k norm, rotation, append of k and v to the cache.
    Rotate,
    /// qkv and KV cache → context.
    Attention,
    /// Context → projected, bias included.
    OutProj,
    /// Residual += projected.
    AttnAdd,
    /// Residual → normed.
    FfnNorm,
    /// Normed → up (gate and up interleaved, see `executor`), bias included.
    UpProj,
    /// Up → inner.
    Activate,
    /// Inner → projected, bias included.
    DownProj,
    /// Residual += projected.
    FfnAdd,
    /// Residual of each sequence's last token → normed.
    HeadNorm,
    /// Normed → logits.
    HeadProj,
    /// Residual → normed.
    RouterNorm,
    /// Normed → routes: the experts of each token and their weights.
    Route,
    /// Normed → shared: a whole feed-forward network.
    SharedExpert,
    /// Residual += shared.
    SharedAdd,
    /// Normed, routes → projected: the weighted sum of each token's experts.
    Experts,
    /// Residual += projected.
    ExpertsAdd,
}

/// An activation that operators hand to each other: [rows, columns], row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// Token ids.
    Tokens,
    /// The residual stream, hidden columns.
    Residual,
    /// A normed residual, hidden columns.
    Normed,
    /// q, k, v side by side.
    Qkv,
    /// The attention's output.
    Context,
    /// What is added to the residual next, hidden columns.
    Projected,
    /// (Gate and) up.
    Up,
    /// The non-linearity's output, intermediate columns.
    Inner,
    /// One row per sequence, vocab columns.
    Logits,
    /// The router's scores, a column for each expert.
    Routes,
    /// The shared expert's output, hidden columns.
    Shared,
}

impl Buffer {
    /// The word used in traces.
    pub fn name(self) -> &'static str {
        match self {
            Buffer::Tokens => "tokens",
            Buffer::Residual => "residual",
            Buffer::Normed => "normed",
            Buffer::Qkv => "qkv",
            Buffer::Context => "context",
            Buffer::Projected => "projected",
            Buffer::Up => "up",
            Buffer::Inner => "inner",
            Buffer::Logits => "logits",
            Buffer::Routes => "routes",
            Buffer::Shared => "shared",
        }
    }

    /// Columns.
    pub fn columns(self, model: &Model) -> u64 {
        match self {
            Buffer::Tokens => 1,
            Buffer::Residual | Buffer::Normed | Buffer::Projected | Buffer::Shared => model.hidden,
            Buffer::Qkv => model.qkv_width(),
            Buffer::Context => model.context_width(),
            Buffer::Up => model.up_width(),
            Buffer::Inner => model.intermediate,
            Buffer::Logits => model.vocab,
            Buffer::Routes => model.experts.as_ref().map_or(0, |experts| experts.count),
        }
    }

    /// Bytes of `columns` of its columns over `rows` rows.
    pub fn bytes(self, formats: &Formats, rows: u64, columns: u64) -> Bytes {
        let dtype = if self == Buffer::Tokens { DType::F32 } else { formats.activations };
        dtype.bytes(Elements::product(&[rows, columns]))
    }
}

impl Operator {
    /// The word used in traces.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Embed => "embed",
            Operator::AttnNorm => "attn_norm",
            Operator::QkvProj => "qkv_proj",
            Operator::Rotate => "rotate",
            Operator::Attention => "attention",
            Operator::OutProj => "out_proj",
            Operator::AttnAdd => "attn_add",
            Operator::FfnNorm => "ffn_norm",
            Operator::UpProj => "up_proj",
            Operator::Activate => "activate",
            Operator::DownProj => "down_proj",
            Operator::FfnAdd => "ffn_add",
            Operator::HeadNorm => "head_norm",
            Operator::HeadProj => "head_proj",
            Operator::RouterNorm => "router_norm",
            Operator::Route => "route",
            Operator::SharedExpert => "shared_expert",
            Operator::SharedAdd => "shared_add",
            Operator::Experts => "experts",
            Operator::ExpertsAdd => "experts_add",
        }
    }

    /// The sublayer it belongs to.
    pub fn sublayer(self) -> Sublayer {
        match self {
            Operator::Embed => Sublayer::Embed,
            Operator::AttnNorm | Operator::QkvProj => Sublayer::Qkv,
            Operator::Rotate | Operator::Attention => Sublayer::Attention,
            Operator::OutProj | Operator::AttnAdd => Sublayer::Out,
            Operator::FfnNorm | Operator::UpProj | Operator::Activate => Sublayer::FfnUp,
            Operator::DownProj | Operator::FfnAdd => Sublayer::FfnDown,
            Operator::HeadNorm | Operator::HeadProj => Sublayer::Head,
            Operator::RouterNorm | Operator::Route => Sublayer::Router,
            Operator::SharedExpert | Operator::SharedAdd => Sublayer::SharedExpert,
            Operator::Experts | Operator::ExpertsAdd => Sublayer::Experts,
        }
    }

    /// Whether it multiplies by a matrix, whose rows may be split between devices.
    pub fn is_matmul(self) -> bool {
        matches!(
            self,
            Operator::QkvProj
                | Operator::OutProj
                | Operator::UpProj
                | Operator::DownProj
                | Operator::HeadProj
                | Operator::Route
                | Operator::SharedExpert
                | Operator::Experts
        )
    }

    /// The buffers it reads.
    pub fn reads(self) -> &'static [Buffer] {
        match self {
            Operator::Embed => &[Buffer::Tokens],
            Operator::AttnNorm | Operator::FfnNorm | Operator::HeadNorm | Operator::RouterNorm => {
                &[Buffer::Residual]
            }
            Operator::QkvProj
            | Operator::UpProj
            | Operator::HeadProj
            | Operator::Route
            | Operator::SharedExpert => &[Buffer::Normed],
            Operator::Rotate | Operator::Attention => &[Buffer::Qkv],
            Operator::OutProj => &[Buffer::Context],
            Operator::AttnAdd | Operator::FfnAdd | Operator::ExpertsAdd => {
                &[Buffer::Residual, Buffer::Projected]
            }
            Operator::SharedAdd => &[Buffer::Residual, Buffer::Shared],
            Operator::Experts => &[Buffer::Normed, Buffer::Routes],
            Operator::Activate => &[Buffer::Up],
            Operator::DownProj => &[Buffer::Inner],
        }
    }

    /// Whether the parts of its matrix make sums as wide as its output, to be added up, rather than columns of it.
    pub fn makes_sums(self) -> bool {
        matches!(self, Operator::SharedExpert | Operator::Experts)
    }

    /// Whether it adds what [`Operator::makes_sums`] left to the residual: once for each device that has a part.
    pub fn adds_sums(self) -> bool {
        matches!(self, Operator::SharedAdd | Operator::ExpertsAdd)
    }

    /// The columns of its output that it writes where it computes `rows` of its matrix: those rows, in proportion
    /// where the output has another width, or all of them where parts are sums.
    pub fn output_columns(self, model: &Model, rows: &Range<u64>) -> Range<u64> {
        let columns = self.writes().columns(model);
        match self.sublayer().matrix(model) {
            Some((all, _)) if self.is_matmul() && !self.makes_sums() && all > 0 => {
                let column = |row: u64| u128::from(row) * u128::from(columns) / u128::from(all);
                // At most `columns` each: they fit.
                column(rows.start) as u64..column(rows.end) as u64
            }
            _ => 0..columns,
        }
    }

    /// The buffer it writes.
    pub fn writes(self) -> Buffer {
        match self {
            Operator::Embed
            | Operator::AttnAdd
            | Operator::FfnAdd
            | Operator::SharedAdd
            | Operator::ExpertsAdd => Buffer::Residual,
            Operator::AttnNorm | Operator::FfnNorm | Operator::HeadNorm | Operator::RouterNorm => {
                Buffer::Normed
            }
            Operator::QkvProj | Operator::Rotate => Buffer::Qkv,
            Operator::Attention => Buffer::Context,
            Operator::OutProj | Operator::DownProj | Operator::Experts => Buffer::Projected,
            Operator::Route => Buffer::Routes,
            Operator::SharedExpert => Buffer::Shared,
            Operator::UpProj => Buffer::Up,
            Operator::Activate => Buffer::Inner,
            Operator::HeadProj => Buffer::Logits,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
