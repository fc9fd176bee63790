//! The share of a model that one of several ranks holds and computes.
//!
//! The division is that of Megatron-LM (Shoeybi et al. 2019, Narayanan et al. 2021). Matrices of q,
//! k, v, gate and up, the columns of experts, the tables of tokens and n-grams, and the head are
//! divided by their outputs. The matrices behind them are divided by their inputs, and attention by
//! heads. The ranks then sum the outputs of the operators for which [`Operator::needs_all_reduce`]
//! is true. A rank's share is itself a [`Model`], so the same code counts its work and bytes.

use crate::model::experts::Experts;
use crate::model::mixer::{CompressedAttention, Mixer};
use crate::model::operators::activation_buffer::ActivationBuffer;
use crate::model::operators::operator::Operator;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use crate::model::wiring::{NgramEmbedding, Wiring};
use hwprofiles::GroupDivision;
use std::borrow::Cow;
use std::ops::Range;

/// A model that cannot be divided among this number of ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {ranks} does not divide the {dimension} of {model}: use {wanted}")]
pub struct IndivisibleModel {
    /// The scenario's key.
    pub key: &'static str,
    /// The number of ranks.
    pub ranks: u64,
    /// What the ranks do not divide: "32 heads".
    pub dimension: String,
    /// The model's name.
    pub model: String,
    /// Which numbers of ranks are possible.
    pub wanted: &'static str,
}

impl Model {
    /// The share of one of `ranks` ranks; with one rank, the model itself.
    ///
    /// Neurons and vocabulary are padded to a multiple of the ranks. If there are fewer KV heads
    /// than ranks, each rank has one head, and several ranks have the same one. Every rank has the
    /// latent vector, the router, the norms and the residual.
    pub fn rank_share(&self, ranks: u64) -> Cow<'_, Self> {
        self.share(ranks, false)
    }

    /// The same where experts are not divided: each rank has some of them.
    pub fn share_with_whole_experts(&self, ranks: u64) -> Cow<'_, Self> {
        self.share(ranks, true)
    }

    fn share(&self, ranks: u64, whole_experts: bool) -> Cow<'_, Self> {
        if ranks <= 1 {
            return Cow::Borrowed(self);
        }
        let share = |count: u64| count.div_ceil(ranks);
        let narrowed = |experts: &Experts| {
            let width = experts.intermediate;
            let intermediate = if whole_experts { width } else { share(width) };
            experts.clone().with_widths(intermediate, share(experts.shared))
        };
        let fewer_rows = |ngrams: NgramEmbedding| NgramEmbedding { rows: share(ngrams.rows), ..ngrams };
        let of_shape = |shape: &Self| Self {
            heads: share(shape.heads),
            kv_heads: share(shape.kv_heads),
            intermediate: share(shape.intermediate),
            vocab: share(shape.vocab),
            experts: shape.experts.as_ref().map(narrowed),
            mixer: match shape.mixer {
                Mixer::Recurrent(recurrence) => Mixer::Recurrent(recurrence.share(ranks)),
                Mixer::Compressed(compressed) => Mixer::Compressed(CompressedAttention {
                    out_groups: share(compressed.out_groups),
                    ..compressed
                }),
                other => other,
            },
            wiring: Wiring { ngrams: shape.wiring.ngrams.map(fewer_rows), ..shape.wiring },
            ..shape.clone()
        };
        Cow::Owned(self.map_shapes(of_shape))
    }

    /// Checks that `ranks` ranks can share the model: each has the same number of heads, and all
    /// query heads of a KV head are on one rank.
    ///
    /// # Errors
    /// [`IndivisibleModel`] says what the ranks do not divide.
    pub fn check_ranks(&self, ranks: u64) -> Result<(), IndivisibleModel> {
        let refuse = |dimension: String, wanted| {
            let (key, model) = ("tensor_parallel", self.name.clone());
            Err(IndivisibleModel { key, ranks, dimension, model, wanted })
        };
        let divides = |shape: &&Self| ranks > 0 && shape.heads.is_multiple_of(ranks);
        if let Some(shape) = std::iter::once(self).chain(self.shapes()).find(|shape| !divides(shape)) {
            return refuse(format!("{} heads", shape.heads), "a divisor of them");
        }
        let shared = self.kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(self.kv_heads);
        if matches!(self.mixer, Mixer::Attention) && !shared {
            return refuse(format!("{} KV heads", self.kv_heads), "a divisor or a multiple of them");
        }
        Ok(())
    }

    /// Checks that the GPUs of a group can divide the model so: as [`Model::check_ranks`], a layer
    /// for each stage, and as many experts on each rank where these are whole.
    ///
    /// # Errors
    /// [`IndivisibleModel`] says what is not divided.
    pub fn check_division(&self, division: GroupDivision) -> Result<(), IndivisibleModel> {
        let GroupDivision { tensor, stages, whole_experts, data } = division;
        if tensor > 1 {
            self.check_ranks(tensor)?;
        }
        let refuse = |key, ranks, dimension: String, wanted| {
            Err(IndivisibleModel { key, ranks, dimension, model: self.name.clone(), wanted })
        };
        if stages > self.layers {
            return refuse("pipeline_parallel", stages, format!("{} layers", self.layers), "fewer stages");
        }
        let experts = self.shapes().iter().filter_map(|shape| shape.experts.as_ref());
        match experts.chain(&self.experts).map(|experts| experts.count).max() {
            None if whole_experts => {
                refuse("expert_parallel", tensor * data, "0 experts".to_owned(), "false: it is dense")
            }
            Some(count) if whole_experts && !count.is_multiple_of(tensor * data) => {
                refuse("expert_parallel", tensor * data, format!("{count} experts"), "a divisor of them")
            }
            _ => Ok(()),
        }
    }
}

impl Sublayer {
    /// The rows of one rank's share of the matrix that correspond to `rows` of the whole matrix;
    /// `rows` itself if the matrix is not divided by its outputs.
    pub fn rank_rows(self, model: &Model, ranks: u64, rows: &Range<u64>) -> Range<u64> {
        if ranks <= 1 {
            return rows.clone();
        }
        let all = |model: &Model| self.matrix(model).map_or(0, |(rows, _)| rows);
        let (whole, share) = (all(model), all(&model.rank_share(ranks)));
        if whole == share || whole == 0 {
            return rows.clone();
        }
        let row = |row: u64| (u128::from(row) * u128::from(share)).div_ceil(u128::from(whole)) as u64;
        row(rows.start)..row(rows.end)
    }
}

impl Operator {
    /// Whether the ranks must add up their outputs: its matrix is divided by its inputs or by
    /// tokens.
    pub fn needs_all_reduce(self) -> bool {
        matches!(
            self,
            Operator::Embed
                | Operator::OutProj
                | Operator::DownProj
                | Operator::SharedExpert
                | Operator::Experts
        )
    }
}

impl ActivationBuffer {
    /// How many of `columns` columns each rank has: a share if the buffer is divided by heads or
    /// neurons, otherwise all.
    pub fn rank_columns(self, model: &Model, ranks: u64, columns: u64) -> u64 {
        let divided = matches!(
            self,
            ActivationBuffer::Qkv
                | ActivationBuffer::Context
                | ActivationBuffer::Up
                | ActivationBuffer::Inner
        );
        if ranks <= 1 || !divided {
            return columns;
        }
        let (whole, share) = (self.columns(model), self.columns(&model.rank_share(ranks)));
        if whole == 0 {
            return columns;
        }
        (u128::from(columns) * u128::from(share)).div_ceil(u128::from(whole)) as u64
    }
}
