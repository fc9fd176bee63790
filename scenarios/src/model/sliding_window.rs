//! Sliding windows: layers in which a token sees only the last ones.

use crate::model::operators::operator::Step;
use crate::model::transformer::Model;
use hwprofiles::{AttentionShape, Flop};
use serde::{Deserialize, Serialize};

/// Layers that see so far back, and those between them that see everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Tokens that a token sees, itself among them.
    pub tokens: u64,
    /// The last of every so many layers sees everything; `None` means that no layer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_every: Option<u64>,
}

impl Window {
    /// Whether `layer` has it.
    pub fn is_of(&self, layer: u64) -> bool {
        self.full_every.is_none_or(|every| !(layer + 1).is_multiple_of(every))
    }
}

impl Model {
    /// Tokens that a token sees in `layer`, itself among them; `None` means all.
    pub fn window_of(&self, layer: u64) -> Option<u64> {
        self.wiring.window.filter(|window| window.is_of(layer)).map(|window| window.tokens)
    }

    /// The base of the rotary frequencies of layers with a window, where those have another than the rest.
    pub fn window_theta(&self) -> Option<f64> {
        self.wiring.window.and(self.wiring.window_theta)
    }

    /// What products of queries and keys are multiplied by: 1 / √head dim, or what the model has instead.
    pub fn score_scale(&self) -> f64 {
        (self.wiring.query_scalar.unwrap_or(self.head_dim) as f64).sqrt().recip()
    }

    /// Layers that see everything, and layers with a window.
    fn layers_by_sight(&self) -> [u64; 2] {
        let full = match self.wiring.window {
            Some(Window { full_every: Some(every), .. }) => self.layers / every,
            Some(Window { full_every: None, .. }) => 0,
            None => self.layers,
        };
        [full, self.layers - full]
    }

    /// The mean over all layers of `full`, what it is in a layer that sees everything, and of `windowed`.
    fn mean(&self, full: u128, windowed: u128) -> u128 {
        let [layers, others] = self.layers_by_sight().map(u128::from);
        (layers * full + others * windowed).div_ceil((layers + others).max(1))
    }
}

/// The attention of `step` in the mean over the layers of a model with windows: what a device's rates are asked for, its
/// FLOP, of which those of the shape are at most a few more, and the tokens of each sequence whose keys and values are read.
///
/// A window w admits min(past + i, w) keys for the i-th new token. The shape has as many pairs of tokens as the mean: those of
/// fewer past tokens, or, where even the new ones do not all see each other, of more and shorter sequences.
pub(crate) fn mean_attention(
    model: &Model,
    step: &Step,
    full: AttentionShape,
) -> (AttentionShape, Flop, u64) {
    let Some(Window { tokens: window, .. }) = model.wiring.window else {
        return (full, full.flop(), full.tokens());
    };
    let [new, past, wide] = [step.new_tokens, step.past_tokens, window].map(u128::from);
    let triangle = new * (new + 1) / 2;
    // So many of the new tokens see everything.
    let all = wide.saturating_sub(past).min(new);
    let pairs = model.mean(new * past + triangle, all * past + all * (all + 1) / 2 + (new - all) * wide);
    let flop = 4 * u128::from(model.heads * model.head_dim) * u128::from(step.batch) * pairs;
    let read = model.mean(past + new, past.min(wide - 1) + new);
    let parts = if pairs >= triangle { 1 } else { new.div_ceil((2 * pairs / new).saturating_sub(1).max(1)) };
    let length = new.div_ceil(parts);
    let before = pairs.saturating_sub(parts * length * (length + 1) / 2).div_ceil((parts * length).max(1));
    // None of these is more than what it is without a window, which fits.
    let [parts, new_tokens, past_tokens] = [parts, length, before].map(|count| count as u64);
    let shape = AttentionShape { batch: full.batch * parts, new_tokens, past_tokens, ..full };
    (shape, Flop::new(flop), read as u64)
}
