//! How long the planner searches.

/// What the search around the best placements may spend, in simulated placements: it is not
/// limited by time, so that the same question has the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effort {
    /// Placements that the search may simulate.
    placements: u32,
    /// Whether the plan is shown beside all rules.
    beside_rules: bool,
}

impl Effort {
    /// No search around the solver's placements, and no rules with one number.
    pub const SOLVE: Self = Self::new(0);
    /// For the many points of a sweep, whose plans nobody reads: the same, without the rules that a
    /// plan is shown beside where one device is provably enough.
    pub const SWEEP: Self = Self { placements: 0, beside_rules: false };
    /// For one plan.
    pub const PLAN: Self = Self::new(288);

    /// A number of placements.
    pub const fn new(placements: u32) -> Self {
        Self { placements, beside_rules: true }
    }

    /// The number of placements.
    pub(crate) fn placements(self) -> usize {
        self.placements as usize
    }

    /// Whether the plan is shown beside all rules.
    pub(crate) fn is_beside_rules(self) -> bool {
        self.beside_rules
    }
}
