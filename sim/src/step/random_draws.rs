//! What a batch run draws at random.

/// What is drawn at random in a run. By default nothing is: every step behaves like the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RandomDraws {
    /// Draws the experts of each token, in each layer of each step.
    pub experts: bool,
    /// Draws how many of a draft's proposed tokens are accepted, for each sequence in each step.
    pub acceptance: bool,
    /// The same seed draws the same.
    pub seed: u64,
}
