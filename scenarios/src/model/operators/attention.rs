//! The attention of one layer in a step: its shape, its FLOP, and the KV tokens that it reads.
//!
//! Three lengths differ. A layer *stores* some positions of a sequence (`kv_bytes`), *scores* some
//! of them for each new token (FLOP), and *reads* some of them in a step (bytes).

use crate::model::latent_attention::LatentAttention;
use crate::model::mixer::{CompressedAttention, Mixer, SparseIndex};
use crate::model::operators::step::Step;
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;
use hwprofiles::{AttentionShape, Flop, Phase};

/// What attention computes and reads in one layer.
#[derive(Debug)]
pub(crate) struct LayerAttention {
    /// The shape for which a device's rate is looked up.
    pub shape: AttentionShape,
    /// FLOP; those of `shape` are slightly more, because it is rounded up to whole tokens or heads.
    pub flop: Flop,
    /// Positions of each sequence whose keys and values are read.
    pub kv_tokens: u64,
}

/// The positions that the new tokens of one sequence attend to.
#[derive(Debug, Clone, Copy)]
struct Sight {
    /// Pairs of a new token and a position that it scores.
    pairs: u128,
    /// Distinct positions that are read.
    read: u64,
}

/// The attention of a layer of `model`'s shape in `step`.
pub(crate) fn layer_attention(model: &Model, step: &Step) -> LayerAttention {
    let full = AttentionShape {
        phase: step.phase,
        batch: step.batch,
        new_tokens: step.new_tokens,
        past_tokens: step.past_tokens,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: (model.head_dim + model.value_dim()).div_ceil(2),
    };
    let sight = sight(model, step);
    let flop = |per_pair: u64| Flop::new(u128::from(per_pair) * u128::from(step.batch) * sight.pairs);
    match model.mixer {
        Mixer::Latent(latent) => {
            let shape = latent_shape(latent, model.heads, with_pairs(full, sight.pairs));
            let flop = flop(model.heads * latent.flop_per_pair(step.phase));
            LayerAttention { shape, flop, kv_tokens: sight.read }
        }
        // Keys are the values too: half the numbers of a head of keys and a head of values, and
        // twice the heads for the same FLOP.
        Mixer::Compressed(_) => {
            let halved = AttentionShape {
                heads: 2 * model.heads,
                kv_heads: 1,
                head_dim: model.head_dim.div_ceil(2),
                ..full
            };
            let flop = flop(4 * model.heads * model.head_dim);
            LayerAttention { shape: with_pairs(halved, sight.pairs), flop, kv_tokens: sight.read }
        }
        _ => {
            let flop = flop(2 * model.heads * (model.head_dim + model.value_dim()));
            LayerAttention { shape: with_pairs(full, sight.pairs), flop, kv_tokens: sight.read }
        }
    }
}

/// The scores of the indexer of a layer of `model`'s shape: each new token scores every position,
/// or every key that stands for several, 2 · heads · (dim + 1) FLOP each.
pub(crate) fn index_scores(model: &Model, index: &SparseIndex, step: &Step) -> LayerAttention {
    let [new, past] = [step.new_tokens, step.past_tokens].map(u128::from);
    let pairs = new * past + new * (new + 1) / 2;
    let ratio = model.tokens_of_index_key();
    let (pairs, read) = (pairs / u128::from(ratio), (step.past_tokens + step.new_tokens) / ratio);
    // One head of keys without values: half as wide as a head that has both.
    let shape = AttentionShape {
        phase: step.phase,
        batch: step.batch,
        new_tokens: step.new_tokens,
        past_tokens: step.past_tokens,
        heads: index.heads,
        kv_heads: 1,
        head_dim: index.dim.div_ceil(2),
    };
    let per_pair = u128::from(2 * index.heads * (index.dim + 1));
    let flop = Flop::new(per_pair * u128::from(step.batch) * pairs);
    LayerAttention { shape: with_pairs(shape, pairs), flop, kv_tokens: read }
}

/// What the new tokens of one sequence see in a layer of `model`'s shape.
fn sight(model: &Model, step: &Step) -> Sight {
    let (new, past) = (step.new_tokens, step.past_tokens);
    let everything = Sight {
        pairs: u128::from(new) * u128::from(past) + u128::from(new) * (u128::from(new) + 1) / 2,
        read: past + new,
    };
    match (model.mixer, model.wiring.window, model.index) {
        (Mixer::Compressed(compressed), _, _) => {
            let window = limited(compressed.window, new, past);
            let entries = compressed_sight(compressed, model.index, new, past);
            Sight { pairs: window.pairs + entries.pairs, read: window.read + entries.read }
        }
        (_, Some(SlidingWindow { tokens, chunked: true }), _) => chunked(tokens, new, past),
        (_, Some(window), _) => limited(window.tokens, new, past),
        (_, None, Some(index)) => Sight {
            // In prefill the new tokens choose different positions, and all are read.
            read: if step.phase == Phase::Decode {
                everything.read.min(index.selected.saturating_mul(new))
            } else {
                everything.read
            },
            pairs: limited(index.selected, new, past).pairs,
        },
        (_, None, None) => everything,
    }
}

/// Σ of min(past + i, most) for the i-th of `new` tokens, i from 1; a moving window of `most`.
fn limited(most: u64, new: u64, past: u64) -> Sight {
    let [count, before, wide] = [new, past, most].map(u128::from);
    // The number of new tokens whose whole context is inside the window.
    let all = wide.saturating_sub(before).min(count);
    let pairs = all * before + all * (all + 1) / 2 + (count - all) * wide;
    Sight { pairs, read: past.min(most.saturating_sub(1)) + new }
}

/// The i-th new token sees the positions of its own chunk of `wide` positions up to itself.
fn chunked(wide: u64, new: u64, past: u64) -> Sight {
    // Σ over positions below `end` of (position mod wide) + 1.
    let below = |end: u64| {
        let [whole, rest, wide] = [end / wide, end % wide, wide].map(u128::from);
        whole * wide * (wide + 1) / 2 + rest * (rest + 1) / 2
    };
    Sight { pairs: below(past + new) - below(past), read: past % wide + new }
}

/// The compressed entries that new tokens attend to: each sees one for every `ratio` tokens before
/// it, at most as many as an indexer chooses.
fn compressed_sight(
    compressed: CompressedAttention,
    index: Option<SparseIndex>,
    new: u64,
    past: u64,
) -> Sight {
    let Some(ratio) = compressed.ratio else { return Sight { pairs: 0, read: 0 } };
    let most = index.map_or(u64::MAX, |index| index.selected);
    // Σ over the first `end` tokens of min(⌊position ÷ ratio⌋, most).
    let below = |end: u64| {
        let cut = most.saturating_mul(ratio).min(end);
        let [whole, rest, ratio, beyond] = [cut / ratio, cut % ratio, ratio, end - cut].map(u128::from);
        ratio * whole * whole.saturating_sub(1) / 2 + rest * whole + beyond * u128::from(most.min(end))
    };
    let entries = (past + new) / ratio;
    let read = if new == 1 { entries.min(most) } else { entries };
    Sight { pairs: below(past + new + 1) - below(past + 1), read }
}

/// Latent attention as a shape of plain attention.
fn latent_shape(latent: LatentAttention, heads: u64, shape: AttentionShape) -> AttentionShape {
    match shape.phase {
        Phase::Prefill => {
            let head_dim = latent.flop_per_pair(shape.phase).div_ceil(4);
            AttentionShape { kv_heads: heads, head_dim, ..shape }
        }
        Phase::Decode => over_latent_vectors(latent, heads, shape),
    }
}

/// Attention to latent vectors: one KV head holds their numbers, half of them as its keys and half
/// as its values, so that bytes are right. There are as many query heads as make the FLOP right.
fn over_latent_vectors(latent: LatentAttention, heads: u64, shape: AttentionShape) -> AttentionShape {
    let head_dim = latent.kv_numbers().div_ceil(2);
    let flop_per_pair = latent.flop_per_pair(Phase::Decode);
    let heads = heads.saturating_mul(flop_per_pair).div_ceil(4 * head_dim);
    AttentionShape { heads, kv_heads: 1, head_dim, ..shape }
}

impl Model {
    /// The attention of a layer of this shape by kernels that score latent vectors, in prompts too,
    /// with heads filled up to `multiple`. `None` unless an indexer chooses what latent attention
    /// reads.
    pub fn sparse_latent_shape(&self, multiple: u64, step: &Step) -> Option<AttentionShape> {
        let (Mixer::Latent(latent), Some(_)) = (self.mixer, self.index) else { return None };
        let heads = self.heads.checked_next_multiple_of(multiple).unwrap_or(self.heads);
        let attention = layer_attention(self, step);
        Some(over_latent_vectors(latent, heads, attention.shape))
    }
}

impl LatentAttention {
    /// FLOP of one head for one pair of a query and a key.
    ///
    /// Prefill attends to keys and values that are expanded for each head; that expansion is one of
    /// the products in front. Decode attends to the latent vectors themselves, which all heads
    /// share; the expansions are absorbed into queries and outputs.
    fn flop_per_pair(&self, phase: Phase) -> u64 {
        2 * match phase {
            Phase::Prefill => self.nope_dim + self.rope_dim + self.v_dim,
            Phase::Decode => self.kv_numbers() + self.kv_rank,
        }
    }
}

/// `full` with as many pairs of tokens in each sequence as `pairs`: it has fewer past tokens; if
/// even the new tokens do not all see each other, it has more and shorter sequences.
fn with_pairs(full: AttentionShape, pairs: u128) -> AttentionShape {
    let [new, past] = [full.new_tokens, full.past_tokens].map(u128::from);
    let triangle = new * (new + 1) / 2;
    if pairs == new * past + triangle || new == 0 {
        return full;
    }
    let parts = if pairs >= triangle { 1 } else { new.div_ceil((2 * pairs / new).saturating_sub(1).max(1)) };
    let length = new.div_ceil(parts);
    let before = pairs.saturating_sub(parts * length * (length + 1) / 2).div_ceil((parts * length).max(1));
    // Each of these is at most about its value without a limit, so it fits into 64 bits.
    let [parts, new_tokens, past_tokens] = [parts, length, before].map(|count| count as u64);
    AttentionShape { batch: full.batch * parts, new_tokens, past_tokens, ..full }
}
