//! The part of a model that each rank of a device holds and computes, and the sums over ranks.
//!
//! [`Model::rank_share`] divides a model. The bytes of a share count once for each rank, so vectors
//! that every rank holds count several times. With one rank nothing changes.

use hwprofiles::{Bytes, DeviceId, Machine, MemoryId, Ranks, Seconds};
use scenarios::{ActivationBuffer, Formats, LayerKind, Model, Operator, Sublayer, kv_bytes};
use std::borrow::Cow;
use std::ops::Range;

/// A model that is divided over ranks.
#[derive(Debug, Clone)]
pub(crate) struct ModelShare<'a> {
    model: &'a Model,
    /// The part of one rank.
    pub share: Cow<'a, Model>,
    /// Number of ranks.
    pub ranks: u64,
}

impl<'a> ModelShare<'a> {
    /// The model divided over `ranks` ranks.
    pub fn new(model: &'a Model, ranks: u64) -> Self {
        Self { model, share: model.rank_share(ranks), ranks }
    }

    /// The same division of the layers of `kind`; of embed and head without one.
    pub fn of_kind(&self, kind: Option<LayerKind>) -> ModelShare<'_> {
        let share = Cow::Borrowed(self.share.shape_or_ends(kind));
        ModelShare { model: self.model.shape_or_ends(kind), share, ranks: self.ranks }
    }

    /// The model as the ranks that own `memory` divide it.
    pub fn in_memory(machine: &Machine, model: &'a Model, memory: MemoryId) -> Self {
        Self::new(model, machine.ranks_of(memory))
    }

    /// The model as the ranks of `device` divide it.
    pub fn on_device(machine: &Machine, model: &'a Model, device: DeviceId) -> Self {
        Self::new(model, machine.device(device).ranks())
    }

    /// The rows of one rank's matrix that belong to `rows` of the whole matrix.
    pub fn rows(&self, sublayer: Sublayer, rows: &Range<u64>) -> Range<u64> {
        sublayer.rank_rows(self.model, self.ranks, rows)
    }

    /// Bytes of `rows` of a matrix, over all ranks.
    pub fn matrix_bytes(&self, sublayer: Sublayer, formats: &Formats, rows: &Range<u64>) -> Bytes {
        let rows = self.rows(sublayer, rows);
        sublayer.matrix_bytes(&self.share, formats.weights, &rows) * self.ranks
    }

    /// Bytes of norms, biases and position tables, over all ranks.
    pub fn vector_bytes(&self, sublayer: Sublayer) -> Bytes {
        sublayer.vector_bytes(&self.share) * self.ranks
    }

    /// Bytes of the cache of one layer, over all ranks.
    pub fn kv_bytes(&self, formats: &Formats, batch: u64, tokens: u64) -> Bytes {
        kv_bytes(&self.share, formats, batch, tokens) * self.ranks
    }

    /// Bytes of the state of `batch` sequences in one layer, over all ranks.
    pub fn state_bytes(&self, batch: u64) -> Bytes {
        self.share.state_bytes() * (batch * self.ranks)
    }

    /// Bytes of `columns` columns of a buffer with `rows` rows, over all ranks.
    pub fn buffer_bytes(
        &self,
        buffer: ActivationBuffer,
        formats: &Formats,
        rows: u64,
        columns: u64,
    ) -> Bytes {
        let columns = buffer.rank_columns(self.model, self.ranks, columns);
        buffer.bytes(formats, rows, columns) * self.ranks
    }

    /// Bytes that new tokens append to the cache of one layer, over all ranks.
    pub fn appended_bytes(&self, formats: &Formats, batch: u64, new_tokens: u64) -> Bytes {
        self.share.appended_bytes(formats, batch, new_tokens) * self.ranks + self.state_bytes(batch)
    }

    /// Bytes of a whole buffer with `rows` rows, over all ranks, as wide as any layer needs it.
    pub fn whole_buffer(&self, buffer: ActivationBuffer, formats: &Formats, rows: u64) -> Bytes {
        let of_shape = |model: &Model, share: &Model| {
            let part = ModelShare { model, share: Cow::Borrowed(share), ranks: self.ranks };
            part.buffer_bytes(buffer, formats, rows, buffer.columns(model))
        };
        let shapes = self.model.shapes().iter().zip(self.share.shapes());
        let widest = shapes.map(|(shape, share)| of_shape(shape, share)).max();
        widest.unwrap_or_default().max(of_shape(self.model, &self.share))
    }
}

/// Time in which the ranks of a device combine their shares of `columns` of an operator's output:
/// an all-reduce if outputs are partial sums; half of one (a gather) for the logits; otherwise
/// nothing.
pub(crate) fn combine_time(
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
        summed if summed.needs_all_reduce() => ranks.all_reduce.time(bytes, ranks.count),
        _ => Seconds::ZERO,
    }
}
