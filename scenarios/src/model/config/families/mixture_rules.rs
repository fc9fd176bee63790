//! What a family's experts have that no key says.

use crate::model::config::keys::Switch;

/// What a family's experts have beside their keys.
#[derive(Clone, Copy)]
pub(crate) struct MixtureRules {
    /// Whether the router adds a bias.
    pub router_bias: Switch,
    /// Whether the shared expert has a gate.
    pub shared_gate: bool,
    /// Whether the weights of a token's experts add up to 1 where `norm_topk_prob` is absent.
    pub normalised: bool,
    /// Whether `intermediate_size` is the width of an expert.
    pub wide: bool,
}

impl MixtureRules {
    /// Experts with a width of their own.
    pub const NARROW: Self =
        Self { router_bias: Switch::No, shared_gate: false, normalised: false, wide: false };
    /// Experts as wide as the network that they replace.
    pub const WIDE: Self = Self { normalised: true, wide: true, ..Self::NARROW };
}
