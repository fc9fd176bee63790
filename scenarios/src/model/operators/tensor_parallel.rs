//! The share of a model that one of several ranks holds and computes.
//!
//! As Megatron-LM divides it (Shoeybi et al. 2019, Narayanan et al. 2021): q, k, v, gate and up, the columns of
//! experts, the token table and the head by their outputs, the matrices behind them by their inputs, attention by
//! heads. What then remains to be summed over the ranks are the outputs of [`Operator::is_summed`]. A rank's share is
//! a model by itself, so that its work and its bytes are counted by what counts those of any model.

use crate::model::experts::Experts;
use crate::model::operators::operator::{Buffer, Operator};
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use std::borrow::Cow;
use std::ops::Range;

/// Ranks that do not divide a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tensor_parallel {ranks} does not divide the {what} of {model}: use {wanted}")]
pub struct Undivided {
    /// The ranks.
    pub ranks: u64,
    /// What they do not divide: "32 heads".
    pub what: String,
    /// Whose.
    pub model: String,
    /// What would be right.
    pub wanted: &'static str,
}

impl Model {
    /// What one of so many ranks has of it; the model itself where there is one rank.
    ///
    /// Neurons and tokens that the ranks do not divide are filled up. Where there are fewer KV heads than ranks, each
    /// rank has one, and several have the same; a latent vector, the router, norms and the residual are with all.
    pub fn of_rank(&self, ranks: u64) -> Cow<'_, Self> {
        if ranks <= 1 {
            return Cow::Borrowed(self);
        }
        let share = |count: u64| count.div_ceil(ranks);
        let narrowed = |experts: &Experts| {
            let (intermediate, shared) = (share(experts.intermediate), share(experts.shared));
            experts.clone().of_widths(intermediate, shared)
        };
        let experts = self.experts.as_ref().map(narrowed);
        Cow::Owned(Self {
            heads: share(self.heads),
            kv_heads: share(self.kv_heads),
            intermediate: share(self.intermediate),
            vocab: share(self.vocab),
            experts,
            ..self.clone()
        })
    }

    /// Whether so many ranks can share it: each has as many heads as the others, and a KV head's queries are together.
    ///
    /// # Errors
    /// [`Undivided`] says what they do not divide.
    pub fn check_ranks(&self, ranks: u64) -> Result<(), Undivided> {
        let refuse = |what: String, wanted| Err(Undivided { ranks, what, model: self.name.clone(), wanted });
        if ranks == 0 || !self.heads.is_multiple_of(ranks) {
            return refuse(format!("{} heads", self.heads), "a divisor of them");
        }
        let shared = self.kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(self.kv_heads);
        if self.latent.is_none() && !shared {
            return refuse(format!("{} KV heads", self.kv_heads), "a divisor or a multiple of them");
        }
        Ok(())
    }
}

impl Sublayer {
    /// What one of `ranks` computes of the rows `rows` of the matrix: as many rows of its own share. All of them where
    /// the matrix is not divided by its outputs.
    pub fn rank_rows(self, model: &Model, ranks: u64, rows: &Range<u64>) -> Range<u64> {
        if ranks <= 1 {
            return rows.clone();
        }
        let all = |model: &Model| self.matrix(model).map_or(0, |(rows, _)| rows);
        let (whole, share) = (all(model), all(&model.of_rank(ranks)));
        if whole == share || whole == 0 {
            return rows.clone();
        }
        let row = |row: u64| (u128::from(row) * u128::from(share)).div_ceil(u128::from(whole)) as u64;
        row(rows.start)..row(rows.end)
    }
}

impl Operator {
    /// Whether ranks have to add up what each computes of it: the matrices divided by their inputs or by tokens.
    pub fn is_summed(self) -> bool {
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

impl Buffer {
    /// How many of `columns` of its columns each of `ranks` has: a share of what is divided by heads or neurons, all of
    /// what every rank needs.
    pub fn rank_columns(self, model: &Model, ranks: u64, columns: u64) -> u64 {
        let divided = matches!(self, Buffer::Qkv | Buffer::Context | Buffer::Up | Buffer::Inner);
        if ranks <= 1 || !divided {
            return columns;
        }
        let (whole, share) = (self.columns(model), self.columns(&model.of_rank(ranks)));
        if whole == 0 {
            return columns;
        }
        (u128::from(columns) * u128::from(share)).div_ceil(u128::from(whole)) as u64
    }
}
