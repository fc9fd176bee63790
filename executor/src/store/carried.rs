//! What operators on the host hand to later ones beside the activations that a plan counts.
//!
//! The residual orders all of their uses: who writes here writes or reads the residual too, or
//! runs between two that do.

use std::collections::BTreeMap;

/// The rows of one micro-batch.
#[derive(Debug, Default)]
pub(crate) struct CarriedRows {
    /// The embeddings, from which each layer's own input is projected.
    pub embedded: Vec<f32>,
    /// The tokens' embeddings for all layers.
    pub for_layers: Vec<f32>,
    /// Residual streams of each token, one after another.
    pub streams: Vec<f32>,
    /// What a layer adds to the residual beside attention.
    pub low_rank: Vec<f32>,
    /// The residual in front of a layer's network.
    pub residual: Vec<f32>,
    /// Hidden states of the model whose MTP module this is: a row for each of the pass's.
    pub hidden: Vec<f32>,
    /// The sums of a layer's shared expert, and of its experts.
    pub sums: [Vec<f32>; 2],
    /// The devices whose parts are in each of these sums.
    pub added: [usize; 2],
    /// By layer: what later layers that share its cache see of a prompt.
    pub prompts: BTreeMap<u32, PromptCache>,
}

/// A ring as it was before a prompt's keys and values replaced some that the prompt still sees.
#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    /// The ring's bytes.
    pub ring: Vec<u8>,
    /// Rows of the prompt's keys and values.
    pub new: Vec<f32>,
}
