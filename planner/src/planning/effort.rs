//! How long the planner searches.

/// What the search around the best placements may spend, in simulated placements: it is not
/// limited by time, so that the same question has the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effort(u32);

impl Effort {
    /// No search around the solver's placements, and no rules with one number: for each of many
    /// questions.
    pub const SOLVE: Self = Self(0);
    /// For one plan.
    pub const PLAN: Self = Self(160);

    /// A number of placements.
    pub fn new(placements: u32) -> Self {
        Self(placements)
    }

    /// The number of placements.
    pub(crate) fn placements(self) -> usize {
        self.0 as usize
    }
}
