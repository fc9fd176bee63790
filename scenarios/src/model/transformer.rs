//! A transformer's shape: everything that the work of its operators depends on.

use crate::model::architecture::{Activation, Architecture, Norm};
use crate::model::experts::Experts;
use crate::model::formats::published::PublishedFormats;
use crate::model::latent_attention::LatentAttention;
use crate::model::mixer::{Mixer, SparseIndex};
use crate::model::positions::Positions;
use crate::model::wiring::{BlockOrder, Wiring};
use hwprofiles::DType;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// A decoder-only transformer, or one shape of its layers ([`Model::shapes`]): the model as if all
/// layers were like that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// Name of the preset or of the folder.
    pub name: String,
    /// The family.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of one head.
    pub head_dim: u64,
    /// Width of the feed-forward network.
    pub intermediate: u64,
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Longest context, in tokens.
    pub max_positions: u64,
    /// Normalisation.
    pub norm: Norm,
    /// The norm's ε.
    pub norm_eps: f64,
    /// Non-linearity.
    pub activation: Activation,
    /// Encoding of positions.
    pub positions: Positions,
    /// Biases on q, k, v.
    pub qkv_bias: bool,
    /// Bias on the attention's output projection.
    pub out_bias: bool,
    /// Biases in the feed-forward network.
    pub ffn_bias: bool,
    /// RMS norm on each head of q and k.
    pub qk_norm: bool,
    /// Whether the output head uses the embedding table's weights.
    pub tied_embeddings: bool,
    /// The number format of the published weights, or of those that are not quantised.
    pub dtype: DType,
    /// The formats of the published weights, if some of them are quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Box<PublishedFormats>>,
    /// The mixture of experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// What mixes tokens. With latent attention `head_dim` is the width of a query head, and
    /// `kv_heads` counts the heads that keys and values are expanded to.
    #[serde(skip_serializing_if = "Mixer::is_plain")]
    pub mixer: Mixer,
    /// The indexer that chooses the tokens that attention reads, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<SparseIndex>,
    /// Differences from Llama's wiring.
    #[serde(skip_serializing_if = "Wiring::is_plain")]
    pub wiring: Wiring,
    /// Modules that predict several tokens (MTP): each is one more layer like the last one, with a
    /// projection in front. They are not counted with the model's layers.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtp: u64,
    /// Sequences that a search keeps of each answer in decode (beam search); 1 without one. They
    /// have the KV cache of their prompt in common.
    #[serde(skip_serializing_if = "crate::model::experts::is_one")]
    pub beams: u64,
    /// The shapes of the layers, if they are not all alike.
    #[serde(skip_serializing_if = "LayerShapes::is_empty")]
    pub shapes: LayerShapes,
}

/// Zero is the common case and is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The shapes of a model's layers, and which layer has which; empty if all layers are alike.
///
/// A shape is a [`Model`] whose layers are all of that shape. So everything that counts a model's
/// work and bytes also counts those of a shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerShapes {
    pub(super) shapes: Arc<[Model]>,
    pub(super) of_layer: Arc<[u16]>,
}

impl Serialize for LayerShapes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut both = serializer.serialize_struct("LayerShapes", 2)?;
        both.serialize_field("shapes", &self.shapes[..])?;
        both.serialize_field("of_layer", &self.of_layer[..])?;
        both.end()
    }
}

impl Model {
    /// The widths of latent attention; `None` with another mixer.
    pub fn latent(&self) -> Option<LatentAttention> {
        match self.mixer {
            Mixer::Latent(latent) => Some(latent),
            _ => None,
        }
    }

    /// Width of one head of values.
    pub fn value_dim(&self) -> u64 {
        self.wiring.value_dim.unwrap_or(self.head_dim)
    }

    /// Columns of the mixer's output, which the output projection reads: heads · width of a value.
    pub fn context_width(&self) -> u64 {
        match self.mixer {
            Mixer::Attention => self.heads * self.value_dim(),
            Mixer::Latent(latent) => self.heads * latent.v_dim,
            Mixer::Compressed(_) => self.heads * self.head_dim,
            Mixer::Recurrent(recurrence) => recurrence.context_width(),
        }
    }

    /// Columns of the gate of the mixer's output; 0 without one.
    pub(crate) fn gate_width(&self) -> u64 {
        match (self.wiring.output_gate, self.wiring.gates_heads) {
            (false, _) => 0,
            (true, true) => self.heads,
            (true, false) => self.context_width(),
        }
    }

    /// Whether attention and the feed-forward network of a layer read the same residual.
    pub fn is_parallel(&self) -> bool {
        matches!(self.wiring.block, BlockOrder::Parallel | BlockOrder::ParallelOneNorm)
    }

    /// Columns of K of one token: kv_heads · head_dim.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Columns of q, k and v together; with latent attention, of q and the latent vector; with a
    /// recurrence, everything that is projected from the residual.
    pub fn qkv_width(&self) -> u64 {
        let queries = self.heads * self.head_dim;
        let gate = self.gate_width();
        let index = self.index.filter(|index| index.computes && !index.fp8_keys);
        let index = index.map_or(0, |index| (index.heads + 1) * index.dim);
        match self.mixer {
            Mixer::Attention if self.wiring.shares_kv => queries + gate,
            Mixer::Attention => {
                queries + gate + index + self.kv_width() + self.kv_heads * self.projected_value_dim()
            }
            Mixer::Latent(latent) => queries + latent.kv_numbers(),
            Mixer::Compressed(_) => queries + self.head_dim,
            Mixer::Recurrent(recurrence) => recurrence.projected(),
        }
    }

    /// Width of a head's value as it is projected; 0 where keys are used as values.
    fn projected_value_dim(&self) -> u64 {
        if self.wiring.keys_are_values { 0 } else { self.value_dim() }
    }

    /// Columns of a head's query that are rotated.
    pub fn rotated_width(&self) -> u64 {
        let partial = self.wiring.rotary_dim.unwrap_or(self.head_dim);
        self.latent().map_or(partial, |latent| latent.rope_dim)
    }

    /// The shape of its layers with a window, or of the others, as far as their heads are rotated;
    /// without such layers the model itself.
    pub fn rotated_shape(&self, windowed: bool) -> &Self {
        let is_such = |shape: &&Self| shape.wiring.window.is_some() == windowed && shape.mixer == self.mixer;
        self.shapes().iter().find(is_such).unwrap_or(self)
    }

    /// Whether a rotated pair is two columns half a head apart although only the first pairs of a
    /// head rotate, with frequencies as if all did (Gemma 4).
    pub fn rotates_whole_heads(&self) -> bool {
        self.architecture == Architecture::Gemma4
    }

    /// Columns of each rotation table: of layers without a window and, if these rotate by another
    /// base, of layers with one. Empty if heads are not rotated at all.
    pub fn rotation_widths(&self) -> Vec<u64> {
        // Nemotron-H's recurrences know the order of tokens; its attention has no positions.
        let none = matches!(self.positions, Positions::Learned { .. });
        if none || self.architecture == Architecture::NemotronH {
            return vec![];
        }
        let width = |windowed: bool| {
            let shape = self.rotated_shape(windowed);
            if shape.rotates_whole_heads() { shape.head_dim } else { shape.rotated_width() }
        };
        let windowed = self.window_theta().is_some();
        std::iter::once(false).chain(windowed.then_some(true)).map(width).collect()
    }

    /// The window of `layer`, in tokens; `None` means that it attends to the whole context.
    pub fn window_of(&self, layer: u64) -> Option<u64> {
        self.layer(layer).wiring.window.map(|window| window.tokens)
    }

    /// The base of the rotary frequencies in layers with a window, if it differs from the others'.
    pub fn window_theta(&self) -> Option<f64> {
        let has_window = self.shapes().iter().any(|shape| shape.wiring.window.is_some());
        self.wiring.window_theta.filter(|_| has_window)
    }

    /// The factor of attention scores: 1 / √head_dim, or 1 / √query_scalar if the model has one,
    /// times the factor of YaRN.
    pub fn score_scale(&self) -> f64 {
        let stretch = match &self.positions {
            Positions::Yarn { scaling, .. } => scaling.score_factor(),
            _ => 1.0,
        };
        stretch * (self.wiring.query_scalar.unwrap_or(self.head_dim) as f64).sqrt().recip()
    }

    /// Output columns of the (fused gate and) up projection.
    pub fn up_width(&self) -> u64 {
        self.matrices_in_front() * self.intermediate
    }

    /// Parameters of a feed-forward network, or of an expert, for each of its neurons: `hidden` for
    /// each of its two or three matrices.
    pub fn neuron_parameters(&self) -> u64 {
        (self.matrices_in_front() + 1) * self.hidden
    }

    /// Activations between the matrices of an expert, for one token and one neuron: (gate,) up and
    /// inner.
    pub fn neuron_activations(&self) -> u64 {
        self.matrices_in_front() + 1
    }

    fn matrices_in_front(&self) -> u64 {
        if self.activation.is_gated() { 2 } else { 1 }
    }

    /// The same model, in which tokens choose experts by Zipf's law with this exponent. A model
    /// without experts does not change.
    #[must_use]
    pub fn with_expert_skew(self, skew: f64) -> Self {
        let skewed = |shape: &Self| Self {
            experts: shape.experts.clone().map(|experts| experts.with_skew(skew)),
            ..shape.clone()
        };
        self.map_shapes(skewed)
    }
}
