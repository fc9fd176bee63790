//! A layer as operators: the only count of FLOP and bytes in Fulcrum.
//!
//! One forward pass (a *step*) is `embed`, then the ten operators of each layer, then `head_norm` and
//! `head`. Operators hand activations to each other through named buffers ([`Buffer`]); which device
//! computes them, where, is the plan's choice and not known here.

use crate::model::Model;
use crate::sublayer::Sublayer;
use hwprofiles::{AttentionShape, Bytes, DType, Elements, Flop, Phase};
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
    pub weights: DType,
    /// The KV cache.
    pub kv: DType,
    /// Everything between operators.
    pub activations: DType,
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
        }
    }

    /// Columns.
    pub fn columns(self, model: &Model) -> u64 {
        match self {
            Buffer::Tokens => 1,
            Buffer::Residual | Buffer::Normed | Buffer::Projected => model.hidden,
            Buffer::Qkv => model.qkv_width(),
            Buffer::Context => model.context_width(),
            Buffer::Up => model.up_width(),
            Buffer::Inner => model.intermediate,
            Buffer::Logits => model.vocab,
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
        )
    }

    /// The buffers it reads.
    pub fn reads(self) -> &'static [Buffer] {
        match self {
            Operator::Embed => &[Buffer::Tokens],
            Operator::AttnNorm | Operator::FfnNorm | Operator::HeadNorm => &[Buffer::Residual],
            Operator::QkvProj | Operator::UpProj | Operator::HeadProj => &[Buffer::Normed],
            Operator::Rotate | Operator::Attention => &[Buffer::Qkv],
            Operator::OutProj => &[Buffer::Context],
            Operator::AttnAdd | Operator::FfnAdd => &[Buffer::Residual, Buffer::Projected],
            Operator::Activate => &[Buffer::Up],
            Operator::DownProj => &[Buffer::Inner],
        }
    }

    /// The buffer it writes.
    pub fn writes(self) -> Buffer {
        match self {
            Operator::Embed | Operator::AttnAdd | Operator::FfnAdd => Buffer::Residual,
            Operator::AttnNorm | Operator::FfnNorm | Operator::HeadNorm => Buffer::Normed,
            Operator::QkvProj | Operator::Rotate => Buffer::Qkv,
            Operator::Attention => Buffer::Context,
            Operator::OutProj | Operator::DownProj => Buffer::Projected,
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

/// What limits an operator's time, with the numbers that a device's rate depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// y[m, n] = x[m, k] · W[n, k]ᵀ.
    Gemm {
        /// Rows of x.
        m: u64,
        /// Rows of W.
        n: u64,
        /// Columns of W.
        k: u64,
    },
    /// Causal attention.
    Attention(AttentionShape),
    /// Bound by the activations it moves.
    Elementwise,
}

/// The work of one operator, or of one device's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// Shape of the computation.
    pub shape: Shape,
    /// A multiply-add is 2; attention counts only what lies below the causal diagonal.
    pub flop: Flop,
    /// Matrix bytes read.
    pub weights: Bytes,
    /// KV-cache bytes read.
    pub kv_read: Bytes,
    /// KV-cache bytes written.
    pub kv_written: Bytes,
    /// Activation bytes read and written.
    pub activations: Bytes,
    /// Fork-joins, or kernel launches.
    pub launches: u32,
}

impl Work {
    /// The work of `operator` in `step`; `rows` is the range of the matrix's output rows (all of them where the
    /// operator has no matrix or is not split).
    pub fn of(operator: Operator, model: &Model, formats: &Formats, step: &Step, rows: &Range<u64>) -> Self {
        let sublayer = operator.sublayer();
        let tokens = match sublayer {
            // Logits are wanted for each sequence's last token alone.
            Sublayer::Head => step.batch,
            _ => step.rows(),
        };
        let moved = |buffer: Buffer| buffer.bytes(formats, tokens, buffer.columns(model));
        let read: Bytes = operator.reads().iter().map(|&buffer| moved(buffer)).sum();
        let mut work = Self {
            shape: Shape::Elementwise,
            flop: Flop::ZERO,
            weights: Bytes::ZERO,
            kv_read: Bytes::ZERO,
            kv_written: Bytes::ZERO,
            activations: read + moved(operator.writes()),
            launches: 1,
        };
        match (operator, sublayer.matrix(model)) {
            (op, Some((_, k))) if op.is_matmul() => {
                let n = rows.end - rows.start;
                work.shape = Shape::Gemm { m: tokens, n, k };
                work.flop = Flop::new(2 * u128::from(tokens) * u128::from(n) * u128::from(k));
                work.weights = sublayer.matrix_bytes(model, formats.weights, rows);
                work.activations = read + operator.writes().bytes(formats, tokens, n);
            }
            (Operator::Embed, _) => {
                work.weights = formats.weights.matrix_bytes(tokens, model.hidden);
            }
            (Operator::Rotate, _) => {
                work.kv_written = kv_bytes(model, formats, step.batch, step.new_tokens);
            }
            (Operator::Attention, _) => {
                let shape = attention_shape(model, step);
                work.shape = Shape::Attention(shape);
                work.flop = shape.flop();
                work.kv_read = formats.kv.bytes(shape.kv_elements());
            }
            _ => {}
        }
        work
    }
}

/// KV bytes of one layer: 2 · batch · tokens · kv_heads · head_dim numbers.
pub fn kv_bytes(model: &Model, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
    formats.kv.bytes(Elements::product(&[2, batch, tokens, model.kv_width()]))
}

/// The attention of one layer in `step`.
fn attention_shape(model: &Model, step: &Step) -> AttentionShape {
    AttentionShape {
        phase: step.phase,
        batch: step.batch,
        new_tokens: step.new_tokens,
        past_tokens: step.past_tokens,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim,
    }
}
