//! Sublayers: the parts of a model that a plan places as one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A group of operators placed as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sublayer {
    /// The token (and position) table, before the layers.
    Embed,
    /// Norm and the fused q, k, v projection.
    Qkv,
    /// Rotation, append to the KV cache, and attention.
    Attention,
    /// Output projection and residual addition.
    Out,
    /// Norm, the fused (gate and) up projection, and the non-linearity.
    FfnUp,
    /// Down projection and residual addition.
    FfnDown,
    /// Norm and the router's scores for each expert.
    Router,
    /// The expert that every token goes to, and residual addition.
    SharedExpert,
    /// The experts that tokens are routed to, and residual addition.
    Experts,
    /// Final norm and the projection to logits, after the layers.
    Head,
}

impl Sublayer {
    /// The sublayers of a dense layer, in order; see [`crate::LayerKind::sublayers`] for other
    /// layers.
    pub const DENSE: [Sublayer; 5] =
        [Sublayer::Qkv, Sublayer::Attention, Sublayer::Out, Sublayer::FfnUp, Sublayer::FfnDown];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Sublayer::Embed => "embed",
            Sublayer::Qkv => "qkv",
            Sublayer::Attention => "attention",
            Sublayer::Out => "out",
            Sublayer::FfnUp => "ffn_up",
            Sublayer::FfnDown => "ffn_down",
            Sublayer::Router => "router",
            Sublayer::SharedExpert => "shared_expert",
            Sublayer::Experts => "experts",
            Sublayer::Head => "head",
        }
    }
}

impl fmt::Display for Sublayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
