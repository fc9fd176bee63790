//! A machine with three devices and four memories, a tiny model, and any placement of one on the other.

use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{LayerPlacement, Placement, ROW_PANEL, Slice, Slices};
use proptest::prelude::*;
use scenarios::{Activation, Architecture, LayerKind, Model, Norm, Positions, Sublayer};
use std::sync::LazyLock;

/// The machine of `three-devices.yaml`.
pub fn machine() -> Machine {
    static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
        Machine::from_yaml(include_str!("three-devices.yaml"), "three-devices.yaml").unwrap()
    });
    MACHINE.clone()
}

/// A Llama-shaped model whose every matrix has a few panels of rows.
pub fn tiny_model(layers: u64) -> Model {
    Model {
        name: "tiny".to_owned(),
        architecture: Architecture::Llama,
        hidden: 64,
        layers,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        intermediate: 96,
        vocab: 160,
        max_positions: 512,
        norm: Norm::Rms,
        norm_eps: 1e-5,
        activation: Activation::SiluGated,
        positions: Positions::Rotary { theta: 10_000.0, scaling: None },
        qkv_bias: false,
        out_bias: false,
        ffn_bias: false,
        qk_norm: false,
        tied_embeddings: false,
        dtype: DType::Bf16,
        experts: None,
        latent: None,
    }
}

/// Any placement: sublayers split anywhere between any devices, weights and KV in any memory.
pub fn placements(model: &Model, machine: &Machine) -> impl Strategy<Value = Placement> + use<> {
    let (devices, memories) = (machine.devices.len(), machine.memories.len());
    let own: Vec<_> = machine.devices.iter().map(|device| device.memory).collect();
    let any_slices = {
        let model = model.clone();
        move |sublayer: Sublayer| slices(&model, sublayer, devices, memories)
    };
    let layer = |index| {
        let kind: LayerKind = model.kind(index);
        let sublayers: Vec<_> = kind.sublayers().iter().copied().map(&any_slices).collect();
        sublayers.prop_map(move |sublayers| LayerPlacement { kind, sublayers })
    };
    let layers: Vec<_> = (0..model.layers).map(layer).collect();
    let vocab = model.vocab;
    // The table of embeddings is looked up where it lies.
    let embed = (0..devices).prop_map(move |device| {
        let (home, device) = (own[device], DeviceId(device));
        vec![Slice { rows: 0..vocab, home, prefill: device, decode: device }]
    });
    (embed, layers, any_slices(Sublayer::Head)).prop_map(|(embed, layers, head)| Placement {
        embed,
        layers,
        head,
    })
}

fn slices(
    model: &Model,
    sublayer: Sublayer,
    devices: usize,
    memories: usize,
) -> impl Strategy<Value = Slices> + use<> {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    let panels: Vec<_> = (1..rows.div_ceil(ROW_PANEL)).map(|panel| panel * ROW_PANEL).collect();
    let most = panels.len().min(2);
    // Undivided sublayers are as common as divided ones.
    let cuts = prop_oneof![Just(vec![]), prop::sample::subsequence(panels, 0..=most)];
    let place = (0..memories, 0..devices, 0..devices);
    (cuts, prop::collection::vec(place, most + 1)).prop_map(move |(cuts, places)| {
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain(std::iter::once(rows));
        let part = |((start, end), &(home, prefill, decode)): ((u64, u64), &(usize, usize, usize))| Slice {
            rows: start..end,
            home: MemoryId(home),
            prefill: DeviceId(prefill),
            decode: DeviceId(decode),
        };
        starts.zip(ends).zip(&places).map(part).collect()
    })
}
