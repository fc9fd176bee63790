//! A machine with three devices and four memories, a tiny model, and any placement of one on the
//! other.

pub mod unequal_layers;

use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use planner::{LayerPlacement, Pipelining, Placement, Slice, Slices};
use proptest::prelude::*;
use scenarios::{
    Activation, Architecture, BlockOrder, Experts, LatentAttention, LayerKind, LayerShapes, Mixer, Model,
    Norm, Positions, Sublayer, Wiring,
};
use std::sync::LazyLock;

/// The machine of `three-devices.yaml`.
pub fn machine() -> Machine {
    static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
        Machine::from_yaml(include_str!("three-devices.yaml"), "three-devices.yaml").unwrap()
    });
    MACHINE.clone()
}

/// A Llama-shaped model. Each of its matrices has a few panels of rows.
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
        published: None,
        experts: None,
        mixer: Mixer::Attention,
        index: None,
        mtp: 0,
        beams: 1,
        shapes: LayerShapes::default(),
        wiring: Wiring::default(),
    }
}

/// The same model with latent attention. After a dense layer, its layers have experts, one of them
/// shared, with unequal chances.
pub fn tiny_experts(layers: u64) -> Model {
    let latent = LatentAttention { q_rank: Some(32), kv_rank: 32, rope_dim: 8, nope_dim: 16, v_dim: 16 };
    let mut experts = Experts::new(6, 2, 32).with_skew(0.5);
    experts.shared = 64;
    Model {
        name: "tiny-experts".to_owned(),
        architecture: Architecture::DeepSeekV3,
        kv_heads: 4,
        head_dim: 24,
        experts: Some(experts),
        mixer: Mixer::Latent(latent),
        ..tiny_model(layers)
    }
    .with_dense_layers(1)
}

/// The same model with layers whose two halves read one residual, through two norms or one.
pub fn tiny_parallel(layers: u64, block: BlockOrder) -> Model {
    Model {
        name: format!("tiny-{block:?}"),
        architecture: Architecture::Falcon,
        norm: Norm::Layer,
        activation: Activation::Gelu,
        wiring: Wiring { block, ..Wiring::default() },
        ..tiny_model(layers)
    }
}

/// A model of `layers` layers of any kind, and any placement of it.
pub fn placed(layers: u64) -> impl Strategy<Value = (Model, Placement)> {
    let any = |model: Model| placements(&model, &machine()).prop_map(move |it| (model.clone(), it));
    let [two, one] =
        [BlockOrder::Parallel, BlockOrder::ParallelOneNorm].map(|block| any(tiny_parallel(layers, block)));
    prop_oneof![any(tiny_model(layers)), any(tiny_experts(layers)), two, one]
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
        sublayers
            .prop_map(move |sublayers| LayerPlacement { kind, sublayers: sublayers.into_iter().collect() })
    };
    let layers: Vec<_> = (0..model.layers).map(layer).collect();
    let vocab = model.vocab;
    // The embedding table is looked up in its home.
    let embed = (0..devices).prop_map(move |device| {
        let (home, device) = (own[device], DeviceId(device));
        vec![Slice { rows: 0..vocab, home, prefill: device, decode: device }]
    });
    let pipelining = (prop_oneof![Just(2usize), 1..6usize], prop_oneof![Just(1u64), 2..5u64])
        .prop_map(|(slots, micro_batches)| Pipelining { slots, micro_batches });
    let parts = (embed, layers, any_slices(Sublayer::Head), pipelining);
    parts.prop_map(|(embed, layers, head, pipelining)| Placement { embed, layers, head, pipelining })
}

fn slices(
    model: &Model,
    sublayer: Sublayer,
    devices: usize,
    memories: usize,
) -> impl Strategy<Value = Slices> + use<> {
    let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
    let panels: Vec<_> = (1..rows.div_ceil(sublayer.panel())).map(|at| at * sublayer.panel()).collect();
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
