//! Overlap within a step: of transfers with computation, and of devices with each other.

use crate::placement::plan_error::PlanError;
use std::ops::RangeInclusive;

/// Overlap within a step that a placement asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pipelining {
    /// Staging slots of each device that streams, the same number for weights and for KV. The
    /// device computes from one slot while the others fill. More slots keep a link busy while the
    /// device waits, and take more memory.
    pub slots: usize,
    /// Number of micro-batches of a step. While one device works on one micro-batch, another can
    /// work on the next. Each micro-batch reads the weights again from the device's memory.
    /// Together they take as much memory as the whole batch.
    pub micro_batches: u64,
}

impl Pipelining {
    /// Valid numbers of slots.
    pub const SLOTS: RangeInclusive<usize> = 1..=16;

    /// Checks the numbers of a document for a batch of `batch` sequences.
    ///
    /// # Errors
    /// A number of slots outside [`Pipelining::SLOTS`], no micro-batch, or more micro-batches than
    /// sequences.
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
    /// Two slots and one micro-batch.
    fn default() -> Self {
        Self { slots: 2, micro_batches: 1 }
    }
}
