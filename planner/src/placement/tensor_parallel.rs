//! What a device of several ranks holds and computes: a share of the model on each, and sums over them.
//!
//! [`Model::of_rank`] says how a model is divided. Bytes in a group's memory are those of one share as many times as
//! there are ranks, so whatever is with every rank counts on each. Where there is one rank, everything is as it is.

use hwprofiles::{Bytes, DeviceId, Machine, MemoryId, Ranks, Seconds};
use scenarios::{Buffer, Formats, Model, Operator, Sublayer, kv_bytes};
use std::borrow::Cow;
use std::ops::Range;

/// A model as some ranks share it.
#[derive(Debug, Clone)]
pub(crate) struct ModelShare<'a> {
    model: &'a Model,
    /// What one rank has of it.
    pub share: Cow<'a, Model>,
    /// How many ranks.
    pub ranks: u64,
}

impl<'a> ModelShare<'a> {
    /// By so many ranks.
    pub fn new(model: &'a Model, ranks: u64) -> Self {
        Self { model, share: model.of_rank(ranks), ranks }
    }

    /// As it is in `memory`.
    pub fn in_memory(machine: &Machine, model: &'a Model, memory: MemoryId) -> Self {
        Self::new(model, machine.ranks_of(memory))
    }

    /// As `device` has it.
    pub fn on_device(machine: &Machine, model: &'a Model, device: DeviceId) -> Self {
        Self::new(model, machine.device(device).ranks())
    }

    /// The rows of one share of a matrix, for the rows `rows` of all of it.
    pub fn rows(&self, sublayer: Sublayer, rows: &Range<u64>) -> Range<u64> {
        sublayer.rank_rows(self.model, self.ranks, rows)
    }

    /// Bytes of the matrix's rows `rows`.
    pub fn matrix_bytes(&self, sublayer: Sublayer, formats: &Formats, rows: &Range<u64>) -> Bytes {
        let rows = self.rows(sublayer, rows);
        sublayer.matrix_bytes(&self.share, formats.weights, &rows) * self.ranks
    }

    /// Bytes of norms, biases and position tables.
    pub fn vector_bytes(&self, sublayer: Sublayer) -> Bytes {
        sublayer.vector_bytes(&self.share) * self.ranks
    }

    /// KV bytes of one layer.
    pub fn kv_bytes(&self, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
        kv_bytes(&self.share, formats, batch, tokens) * self.ranks
    }

    /// Bytes of `columns` of a buffer's columns over `rows` rows.
    pub fn buffer_bytes(&self, buffer: Buffer, formats: &Formats, rows: u64, columns: u64) -> Bytes {
        let columns = buffer.rank_columns(self.model, self.ranks, columns);
        buffer.bytes(formats, rows, columns) * self.ranks
    }

    /// Bytes of all of a buffer's columns over `rows` rows.
    pub fn whole_buffer(&self, buffer: Buffer, formats: &Formats, rows: u64) -> Bytes {
        self.buffer_bytes(buffer, formats, rows, buffer.columns(self.model))
    }
}

/// What the ranks of a device need, each having computed its share of `operator`, to have the columns `columns` of its
/// output together: an all-reduce where outputs are partial sums, half of one for the logits, which each has some of.
pub(crate) fn joining(
    ranks: Option<&Ranks>,
    operator: Operator,
    formats: &Formats,
    tokens: u64,
    columns: &Range<u64>,
) -> Seconds {
    let Some(ranks) = ranks else { return Seconds::ZERO };
    let bytes = operator.writes().bytes(formats, tokens, columns.end - columns.start);
    match operator {
        Operator::HeadProj => ranks.all_reduce.gather_time(bytes, ranks.count),
        summed if summed.is_summed() => ranks.all_reduce.time(bytes, ranks.count),
        _ => Seconds::ZERO,
    }
}
