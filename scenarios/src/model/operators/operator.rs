//! Operators: the single computations that a layer consists of.
//!
//! One forward pass (a *step*) is `embed`, then the operators of each layer, then `head_norm` and
//! `head_proj`. Operators pass activations to each other through named buffers
//! ([`ActivationBuffer`]). The plan chooses the device that computes an operator and the memory
//! that holds its buffers; this crate knows neither.

use crate::model::operators::activation_buffer::ActivationBuffer;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// One computation of a step; a device runs it, or its part of it, as a whole.
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
    /// qkv and the indexer's keys → the positions that attention reads.
    IndexScores,
    /// qkv and KV cache → context; in a recurrence, qkv and state → context.
    Attention,
    /// Context → projected, bias included.
    OutProj,
    /// Residual += projected.
    AttnAdd,
    /// Residual → normed.
    FfnNorm,
    /// Normed → up (gate and up, if the network is gated), bias included.
    UpProj,
    /// Up → inner.
    Activate,
    /// Inner → projected, bias included.
    DownProj,
    /// Residual += projected.
    FfnAdd,
    /// Residual of the sampled rows → normed.
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

impl Operator {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Embed => "embed",
            Operator::AttnNorm => "attn_norm",
            Operator::QkvProj => "qkv_proj",
            Operator::Rotate => "rotate",
            Operator::IndexScores => "index_scores",
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
            Operator::Rotate | Operator::IndexScores | Operator::Attention => Sublayer::Attention,
            Operator::OutProj | Operator::AttnAdd => Sublayer::Out,
            Operator::FfnNorm | Operator::UpProj | Operator::Activate => Sublayer::FfnUp,
            Operator::DownProj | Operator::FfnAdd => Sublayer::FfnDown,
            Operator::HeadNorm | Operator::HeadProj => Sublayer::Head,
            Operator::RouterNorm | Operator::Route => Sublayer::Router,
            Operator::SharedExpert | Operator::SharedAdd => Sublayer::SharedExpert,
            Operator::Experts | Operator::ExpertsAdd => Sublayer::Experts,
        }
    }

    /// Whether it multiplies by a matrix. The rows of that matrix can be divided between devices.
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
    pub fn reads(self) -> &'static [ActivationBuffer] {
        match self {
            Operator::Embed => &[ActivationBuffer::Tokens],
            Operator::AttnNorm | Operator::FfnNorm | Operator::HeadNorm | Operator::RouterNorm => {
                &[ActivationBuffer::Residual]
            }
            Operator::QkvProj
            | Operator::UpProj
            | Operator::HeadProj
            | Operator::Route
            | Operator::SharedExpert => &[ActivationBuffer::Normed],
            Operator::Rotate | Operator::IndexScores | Operator::Attention => &[ActivationBuffer::Qkv],
            Operator::OutProj => &[ActivationBuffer::Context],
            Operator::AttnAdd | Operator::FfnAdd | Operator::ExpertsAdd => {
                &[ActivationBuffer::Residual, ActivationBuffer::Projected]
            }
            Operator::SharedAdd => &[ActivationBuffer::Residual, ActivationBuffer::Shared],
            Operator::Experts => &[ActivationBuffer::Normed, ActivationBuffer::Routes],
            Operator::Activate => &[ActivationBuffer::Up],
            Operator::DownProj => &[ActivationBuffer::Inner],
        }
    }

    /// Whether each device's part of its matrix gives a partial sum as wide as the whole output,
    /// instead of some of the output's columns.
    pub fn makes_partial_sums(self) -> bool {
        matches!(self, Operator::SharedExpert | Operator::Experts)
    }

    /// Whether it adds such partial sums to the residual, once for each device that has a part (see
    /// [`Operator::makes_partial_sums`]).
    pub fn adds_partial_sums(self) -> bool {
        matches!(self, Operator::SharedAdd | Operator::ExpertsAdd)
    }

    /// The output columns that it writes when it computes `rows` of its matrix: the same range,
    /// scaled to the output's width; all columns if its parts are partial sums.
    pub fn output_columns(self, model: &Model, rows: &Range<u64>) -> Range<u64> {
        let columns = self.writes().columns(model);
        let is_divided = self.is_matmul() && !self.makes_partial_sums();
        match is_divided.then(|| self.sublayer().matrix(model)).flatten() {
            Some((all, _)) if all > 0 => {
                let column = |row: u64| u128::from(row) * u128::from(columns) / u128::from(all);
                // Both are at most `columns`, so they fit into 64 bits.
                column(rows.start) as u64..column(rows.end) as u64
            }
            _ => 0..columns,
        }
    }

    /// The buffer it writes.
    pub fn writes(self) -> ActivationBuffer {
        match self {
            Operator::Embed
            | Operator::AttnAdd
            | Operator::FfnAdd
            | Operator::SharedAdd
            | Operator::ExpertsAdd => ActivationBuffer::Residual,
            Operator::AttnNorm | Operator::FfnNorm | Operator::HeadNorm | Operator::RouterNorm => {
                ActivationBuffer::Normed
            }
            Operator::QkvProj | Operator::Rotate => ActivationBuffer::Qkv,
            // Attention reads the chosen positions before it writes its own result there.
            Operator::IndexScores | Operator::Attention => ActivationBuffer::Context,
            Operator::OutProj | Operator::DownProj | Operator::Experts => ActivationBuffer::Projected,
            Operator::Route => ActivationBuffer::Routes,
            Operator::SharedExpert => ActivationBuffer::Shared,
            Operator::UpProj => ActivationBuffer::Up,
            Operator::Activate => ActivationBuffer::Inner,
            Operator::HeadProj => ActivationBuffer::Logits,
        }
    }
}

impl Sublayer {
    /// Its operators in `model`, in order.
    pub fn operators(self, model: &Model) -> &'static [Operator] {
        match self {
            Sublayer::Embed => &[Operator::Embed],
            Sublayer::Qkv => &[Operator::AttnNorm, Operator::QkvProj],
            Sublayer::Attention if model.index.is_some_and(|index| index.computes) => {
                &[Operator::Rotate, Operator::IndexScores, Operator::Attention]
            }
            Sublayer::Attention => &[Operator::Rotate, Operator::Attention],
            Sublayer::Out => &[Operator::OutProj, Operator::AttnAdd],
            // The output of attention's norm is used again.
            Sublayer::FfnUp if model.wiring.block == BlockOrder::ParallelOneNorm => {
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

    /// Whether its vectors begin with those of a norm, be it in front of its matrix or behind it.
    pub fn has_norm(self, model: &Model) -> bool {
        match self {
            Sublayer::Out | Sublayer::FfnDown => model.wiring.norms_behind,
            _ => self.operators(model)[0].writes() == ActivationBuffer::Normed,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
