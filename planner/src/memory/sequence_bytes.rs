//! What one sequence keeps in each memory, by the way in which it grows with its tokens.

use crate::cost::CostModel;
use crate::placement::{ModelShare, Placement};
use hwprofiles::{Bytes, Machine, MemoryId};
use scenarios::{Formats, Mixer, Model};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The bytes that one sequence keeps in a memory. With n tokens it keeps
/// n ÷ block size · `block` + Σ min(n, window) · bytes per token + `state`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SequenceBytes {
    /// Bytes that each block of tokens adds without end: keys and values of layers that see the
    /// whole context, compressed ones, keys of indexers.
    pub block: Bytes,
    /// By tokens of a window, the bytes that each token adds until the window is full.
    pub windows: BTreeMap<u64, Bytes>,
    /// Bytes that do not depend on the tokens.
    pub state: Bytes,
}

impl SequenceBytes {
    /// The bytes of a sequence of `tokens` tokens in whole blocks of `block_size` tokens.
    pub fn at(&self, tokens: u64, block_size: u64) -> Bytes {
        if tokens == 0 {
            return Bytes::ZERO;
        }
        let blocks = tokens.div_ceil(block_size);
        self.block * blocks + self.beside(blocks * block_size, true)
    }

    /// The bytes beside those that grow without end: windows after `tokens` tokens, and the state
    /// if it `has_state`.
    pub fn beside(&self, tokens: u64, has_state: bool) -> Bytes {
        let windows = self.windows.iter().map(|(&window, &each)| each * tokens.min(window));
        windows.sum::<Bytes>() + if has_state { self.state } else { Bytes::ZERO }
    }

    /// The bytes that do not grow without end: full windows, and the state.
    pub fn constant(&self) -> Bytes {
        self.beside(u64::MAX, true)
    }

    /// Whether it keeps nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What one sequence keeps in each memory with `placement`, by memory index, if the cache is
/// divided into blocks of `block_size` tokens. The bytes in a striped memory count in the memories
/// below it.
pub fn sequence_bytes(
    cost_model: CostModel<'_>,
    placement: &Placement,
    block_size: u64,
) -> Vec<SequenceBytes> {
    let CostModel { machine, model, formats } = cost_model;
    let mut all = vec![SequenceBytes::default(); machine.memories.len()];
    for run in placement.layers.chunk_by(|one, next| one == next) {
        let Some(home) = run[0].kv_home() else { continue };
        let within = ModelShare::in_memory(machine, model, home);
        let layer = layer_bytes(&within.of_kind(Some(run[0].kind)), formats, block_size);
        add_layers(&mut all, machine, home, &layer, run.len() as u64);
    }
    all
}

fn add_layers(
    all: &mut [SequenceBytes],
    machine: &Machine,
    home: MemoryId,
    layer: &SequenceBytes,
    layers: u64,
) {
    for (memory, bytes) in machine.bytes_by_memory(home, layer.block) {
        all[memory.0].block += bytes * layers;
    }
    for (memory, bytes) in machine.bytes_by_memory(home, layer.state) {
        all[memory.0].state += bytes * layers;
    }
    for (&window, &each) in &layer.windows {
        for (memory, bytes) in machine.bytes_by_memory(home, each).filter(|(_, b)| b.get() > 0) {
            *all[memory.0].windows.entry(window).or_default() += bytes * layers;
        }
    }
}

/// What a sequence keeps in one layer.
fn layer_bytes(layer: &ModelShare<'_>, formats: &Formats, block_size: u64) -> SequenceBytes {
    let shape: &Model = &layer.share;
    let (window, ratio) = match shape.mixer {
        Mixer::Compressed(compressed) => (Some(compressed.window), compressed.ratio.unwrap_or(1)),
        _ => (shape.wiring.window.map(|window| window.tokens), 1),
    };
    let state = layer.state_bytes(1);
    let kept = |tokens: u64| layer.kv_bytes(formats, 1, tokens);
    // Behind the window, and at a boundary of compressed groups, all growth is without end.
    let behind = window.unwrap_or(0).max(1).next_multiple_of(ratio);
    let grown = |tokens: u64| kept(behind + tokens) - kept(behind);
    let block = Bytes::new(grown(ratio * block_size).get().div_ceil(ratio));
    let mut windows = BTreeMap::new();
    if let Some(window) = window {
        // The first token completes no compressed group of several tokens.
        let without_end = if ratio == 1 { grown(1) } else { Bytes::ZERO };
        let each = kept(1) - state - without_end;
        if each > Bytes::ZERO {
            windows.insert(window, each);
        }
    }
    SequenceBytes { block, windows, state }
}
