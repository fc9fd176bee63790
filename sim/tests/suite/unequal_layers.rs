//! Models whose layers keep unequal things of a sequence: windows, states, indexed and compressed
//! keys.

use crate::machine::{tiny_experts, tiny_model};
use scenarios::{CompressedAttention, Experts, Mixer, Model, Recurrence, SlidingWindow, SparseIndex};

fn with_layers(model: Model, layer: impl Fn(u64, Model) -> Model) -> Model {
    let layers = (0..model.layers).map(|index| layer(index, model.layer(index).clone())).collect();
    model.with_layers(layers)
}

/// Every `period`-th layer sees the whole context, the others a window of `window` tokens.
pub fn windows(layers: u64, period: u64, window: SlidingWindow) -> Model {
    with_layers(Model { name: "windows".to_owned(), ..tiny_model(layers) }, |index, mut layer| {
        layer.wiring.window = ((index + 1) % period != 0).then_some(window);
        layer
    })
}

/// Shaped like gpt-oss: every other layer has a window, and all have experts.
pub fn gpt_oss_like(window: u64) -> Model {
    with_layers(Model { name: "gpt-oss-like".to_owned(), ..tiny_model(4) }, |index, mut layer| {
        layer.wiring.window = (index % 2 == 0).then(|| SlidingWindow::new(window));
        layer.experts = Some(Experts::new(8, 2, 32));
        layer
    })
}

/// Shaped like Gemma 3: five layers with a window, then one without.
pub fn gemma_like(window: u64) -> Model {
    windows(6, 6, SlidingWindow::new(window))
}

/// Shaped like Qwen3-Next: three gated delta nets, then a layer of attention.
pub fn delta_like() -> Model {
    let recurrence =
        Recurrence::GatedDelta { key_heads: 2, value_heads: 4, key_dim: 16, value_dim: 16, taps: 4 };
    with_layers(Model { name: "delta-like".to_owned(), ..tiny_model(8) }, |index, mut layer| {
        if (index + 1) % 4 != 0 {
            layer.mixer = Mixer::Recurrent(recurrence);
        }
        layer
    })
}

/// Shaped like DeepSeek-V3.2: latent attention to the tokens that an indexer chooses.
pub fn indexed_like(selected: u64) -> Model {
    let index = SparseIndex { heads: 2, dim: 16, selected, computes: true, fp8_keys: true, pooled: None };
    with_layers(Model { name: "indexed-like".to_owned(), ..tiny_experts(3) }, |_, mut layer| {
        layer.index = Some(index);
        layer
    })
}

/// Shaped like DeepSeek-V4: windows alone, and compressed keys of each kind.
pub fn compressed_like(window: u64) -> Model {
    with_layers(Model { name: "compressed-like".to_owned(), ..tiny_model(3) }, |index, mut layer| {
        let (ratio, sets) = [(None, 1), (Some(4), 2), (Some(16), 1)][index as usize];
        layer.mixer = Mixer::Compressed(CompressedAttention {
            q_rank: 32,
            out_rank: 16,
            out_groups: 2,
            window,
            ratio,
            sets,
        });
        layer
    })
}

/// One of each.
pub fn all() -> Vec<Model> {
    vec![
        gpt_oss_like(24),
        gemma_like(64),
        delta_like(),
        indexed_like(48),
        compressed_like(16),
        windows(4, 2, SlidingWindow { tokens: 64, chunked: true }),
    ]
}
