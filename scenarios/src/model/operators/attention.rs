//! The attention of one layer in a step: its shape, its FLOP, and the KV tokens that it reads.

use crate::model::latent_attention::LatentAttention;
use crate::model::operators::step::Step;
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;
use hwprofiles::{AttentionShape, Flop, Phase};

/// What attention computes and reads in one layer.
pub(crate) struct LayerAttention {
    /// The shape for which a device's rate is looked up.
    pub shape: AttentionShape,
    /// FLOP; those of `shape` are slightly more, because it is rounded up to whole tokens or heads.
    pub flop: Flop,
    /// Tokens of each sequence whose keys and values are read.
    pub kv_tokens: u64,
}

/// The attention of one layer in `step`; if some layers have a sliding window, the mean over all
/// layers.
pub(crate) fn layer_attention(model: &Model, step: &Step) -> LayerAttention {
    let shape = AttentionShape {
        phase: step.phase,
        batch: step.batch,
        new_tokens: step.new_tokens,
        past_tokens: step.past_tokens,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim,
    };
    match (model.latent, model.wiring.window) {
        (Some(latent), _) => latent_attention(latent, model.heads, shape),
        (None, Some(window)) => mean_attention(model, window, step, shape),
        (None, None) => LayerAttention { shape, flop: shape.flop(), kv_tokens: shape.tokens() },
    }
}

/// Latent attention: `shape` is the attention before its latent form is considered.
///
/// In decode, one KV head holds `kv_numbers` numbers, half of them as its keys and half as its
/// values, so that bytes are right. The number of query heads is chosen so that the FLOP are right.
fn latent_attention(latent: LatentAttention, heads: u64, shape: AttentionShape) -> LayerAttention {
    let flop_per_pair = latent.flop_per_pair(shape.phase);
    let flop = Flop::new(u128::from(heads * flop_per_pair) * shape.pairs());
    let kv_tokens = shape.tokens();
    let shape = match shape.phase {
        Phase::Prefill => AttentionShape { kv_heads: heads, head_dim: flop_per_pair.div_ceil(4), ..shape },
        Phase::Decode => {
            let head_dim = latent.kv_numbers().div_ceil(2);
            let heads = (heads * flop_per_pair).div_ceil(4 * head_dim);
            AttentionShape { heads, kv_heads: 1, head_dim, ..shape }
        }
    };
    LayerAttention { shape, flop, kv_tokens }
}

impl LatentAttention {
    /// FLOP of one head for one pair of a query and a key.
    ///
    /// Prefill attends to keys and values that are expanded for each head; that expansion is
    /// counted with the projections, for new tokens only. Decode attends to the latent vectors
    /// themselves, which all heads share; the expansions are absorbed into queries and outputs.
    fn flop_per_pair(&self, phase: Phase) -> u64 {
        2 * match phase {
            Phase::Prefill => self.nope_dim + self.rope_dim + self.v_dim,
            Phase::Decode => self.kv_numbers() + self.kv_rank,
        }
    }
}

/// The mean attention over the layers of a model in which some layers have a sliding window.
///
/// A window w admits min(past + i, w) keys for the i-th new token. The returned shape has as many
/// pairs of tokens as the mean. It has fewer past tokens than `full`; if even the new tokens do not
/// all see each other, it has more and shorter sequences.
fn mean_attention(model: &Model, window: SlidingWindow, step: &Step, full: AttentionShape) -> LayerAttention {
    let [new, past, wide] = [step.new_tokens, step.past_tokens, window.tokens].map(u128::from);
    let mean = |full: u128, windowed: u128| mean_over_layers(model, window, full, windowed);
    let triangle = new * (new + 1) / 2;
    // The number of new tokens whose whole context is inside the window.
    let all = wide.saturating_sub(past).min(new);
    let pairs = mean(new * past + triangle, all * past + all * (all + 1) / 2 + (new - all) * wide);
    let flop = 4 * u128::from(model.heads * model.head_dim) * u128::from(step.batch) * pairs;
    let read = mean(past + new, past.min(wide - 1) + new);
    let parts = if pairs >= triangle { 1 } else { new.div_ceil((2 * pairs / new).saturating_sub(1).max(1)) };
    let length = new.div_ceil(parts);
    let before = pairs.saturating_sub(parts * length * (length + 1) / 2).div_ceil((parts * length).max(1));
    // Each of these is at most its value without a window, so it fits into 64 bits.
    let [parts, new_tokens, past_tokens] = [parts, length, before].map(|count| count as u64);
    let shape = AttentionShape { batch: full.batch * parts, new_tokens, past_tokens, ..full };
    LayerAttention { shape, flop: Flop::new(flop), kv_tokens: read as u64 }
}

/// The mean over all layers, rounded up: `full` in a layer with full attention, `windowed` in a
/// layer with the window.
fn mean_over_layers(model: &Model, window: SlidingWindow, full: u128, windowed: u128) -> u128 {
    let full_layers = window.full_every.map_or(0, |every| model.layers / every);
    let [layers, others] = [full_layers, model.layers - full_layers].map(u128::from);
    (layers * full + others * windowed).div_ceil((layers + others).max(1))
}
