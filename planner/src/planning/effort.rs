//! How long the planner searches.

/// What the search around the best placements may spend, in simulated placements: it is not
/// limited by time, so that the same question has the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effort {
    /// Simulations of a whole placement that the search may spend. They are counted in layers: a
    /// part of a model costs its layers and a few more, and models below 64 layers have the
    /// budget of 64.
    placements: u32,
    /// Whether all rules are simulated even where one device is provably enough.
    simulates_all_rules: bool,
}

impl Effort {
    /// No search around the solver's placements, and no rules with one number.
    pub const SOLVE: Self = Self::new(0);
    /// For the many points of a sweep: no search, and no rules where one device is provably enough.
    pub const SWEEP: Self = Self { placements: 0, simulates_all_rules: false };
    /// For one plan.
    pub const PLAN: Self = Self::new(288);

    /// A number of placements.
    pub const fn new(placements: u32) -> Self {
        Self { placements, simulates_all_rules: true }
    }

    /// The number of placements.
    pub(crate) fn placements(self) -> usize {
        self.placements as usize
    }

    /// Whether all rules are simulated even where one device is provably enough.
    pub(crate) fn simulates_all_rules(self) -> bool {
        self.simulates_all_rules
    }
}
