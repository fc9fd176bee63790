//! How far ahead streamed weights and KV are fetched.

use crate::plan::PlanError;
use std::ops::RangeInclusive;

/// What overlaps within a step beyond what lanes give by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pipelining {
    /// Staging slots of each device that streams, so many for weights and as many for KV: one is computed from while
    /// the others fill. With more of them a link goes on where a device is kept waiting, and more memory is taken.
    pub slots: usize,
}

impl Pipelining {
    /// The slots that there may be.
    pub const SLOTS: RangeInclusive<usize> = 1..=16;

    /// So many slots.
    ///
    /// # Errors
    /// More or fewer than [`Pipelining::SLOTS`].
    pub(crate) fn read(slots: usize) -> Result<Self, PlanError> {
        if !Self::SLOTS.contains(&slots) {
            let wanted = format!("from {} to {}", Self::SLOTS.start(), Self::SLOTS.end());
            return Err(PlanError::new(&["staging_slots"], slots, wanted));
        }
        Ok(Self { slots })
    }
}

impl Default for Pipelining {
    /// Two slots: one is computed from while the other fills.
    fn default() -> Self {
        Self { slots: 2 }
    }
}
