//! What overlaps within a step: fetches with what is computed, and devices with each other.

use crate::placement::plan_error::PlanError;
use std::ops::RangeInclusive;

/// What overlaps within a step beyond what lanes give by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pipelining {
    /// Staging slots of each device that streams, so many for weights and as many for KV: one is computed from while
    /// the others fill. With more of them a link goes on where a device is kept waiting, and more memory is taken.
    pub slots: usize,
    /// Parts of contiguous sequences into which the batch of a step is divided: while one device has one part, another
    /// can have the next. Each part reads the weights again, once they are in the device's memory. All parts together
    /// take the memory of the whole.
    pub micro_batches: u64,
}

impl Pipelining {
    /// The slots that there may be.
    pub const SLOTS: RangeInclusive<usize> = 1..=16;

    /// So many slots, and so many parts of a batch of `batch` sequences.
    ///
    /// # Errors
    /// More or fewer than [`Pipelining::SLOTS`], no part at all, or more than sequences.
    pub(crate) fn read(slots: usize, micro_batches: u64, batch: u64) -> Result<Self, PlanError> {
        if !Self::SLOTS.contains(&slots) {
            let wanted = format!("from {} to {}", Self::SLOTS.start(), Self::SLOTS.end());
            return Err(PlanError::new(&["staging_slots"], slots, wanted));
        }
        if !(1..=batch).contains(&micro_batches) {
            let wanted = format!("from 1 to the {batch} sequences of the batch");
            return Err(PlanError::new(&["micro_batches"], micro_batches, wanted));
        }
        Ok(Self { slots, micro_batches })
    }
}

impl Default for Pipelining {
    /// Two slots, one computed from while the other fills; the batch in one piece.
    fn default() -> Self {
        Self { slots: 2, micro_batches: 1 }
    }
}
