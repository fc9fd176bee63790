//! What sequences keep in memories, in models whose layers have windows and states.

use crate::cases::cases;
use crate::machine::{machine, tiny_model};
use hwprofiles::{Bytes, DType, DeviceId, Library};
use planner::{
    CostModel, LayerPlacement, MemoryUsage, PhasePrograms, Placement, RunExtent, SequenceBytes, footprint,
    scratch_bytes, sequence_bytes, usage, whole_slice,
};
use proptest::prelude::*;
use scenarios::{CompressedAttention, Formats, Mixer, Model, Recurrence, SlidingWindow, WeightFormats};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };

/// Four layers: with the whole context, with a window, with a recurrence, with compressed keys.
fn model(window: Option<u64>) -> Model {
    let mut layers = vec![tiny_model(4); 4];
    layers[1].wiring.window = window.map(SlidingWindow::new);
    let (state, heads) = (16, 4);
    layers[2].mixer = Mixer::Recurrent(Recurrence::Mamba2 { heads, head_dim: 16, groups: 1, state, taps: 4 });
    let (q_rank, out_rank, out_groups) = (32, 16, 2);
    let ratio = Some(4);
    layers[3].mixer =
        Mixer::Compressed(CompressedAttention { q_rank, out_rank, out_groups, window: 32, ratio, sets: 1 });
    tiny_model(4).with_layers(layers)
}

/// What the model takes on the GPU.
fn used(model: &Model, batch: u64, context: u64) -> MemoryUsage {
    let machine = machine();
    let gpu = DeviceId(1);
    let memory = machine.device(gpu).memory;
    let placement = Placement::uniform(model, gpu, memory);
    let programs = PhasePrograms::lower(&machine, model, &placement).unwrap();
    let extent = RunExtent { batch, context, chunk: 64, step_tokens: 1 };
    usage(&machine, model, &FORMATS, &placement, &programs, &extent)[memory.0]
}

/// What a sequence keeps on the GPU.
fn kept(model: &Model, block_size: u64) -> SequenceBytes {
    let machine = machine();
    let gpu = DeviceId(1);
    let memory = machine.device(gpu).memory;
    let placement = Placement::uniform(model, gpu, memory);
    sequence_bytes(&machine, model, &FORMATS, &placement, block_size).swap_remove(memory.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn a_window_never_keeps_more_than_the_whole_context(
        window in 1u64..300, wider in 0u64..300, batch in 1u64..9, context in 1u64..500,
    ) {
        let [narrow, wide, whole] =
            [Some(window), Some(window + wider), None].map(|window| used(&model(window), batch, context).kv);
        prop_assert!(narrow <= wide && wide <= whole);
        prop_assert!(context > window || narrow == whole);
    }

    #[test]
    fn behind_the_window_only_what_sees_everything_grows(batch in 1u64..9, past in 0u64..300, more in 1u64..50) {
        let (window, more) = (64, more * 4);
        let grown = |window: Option<u64>| {
            let [before, after] =
                [past, past + more].map(|past| used(&model(window), batch, 64 + past / 4 * 4).kv);
            after - before
        };
        // A layer that sees everything keeps 2 · 2 · 16 numbers of each token, the compressed one
        // 16 of each four tokens.
        prop_assert_eq!(grown(Some(window)), Bytes::new(batch * (more * 64 + more / 4 * 16) * 2));
        prop_assert_eq!(grown(None), grown(Some(window)) + Bytes::new(batch * more * 64 * 2));
    }

    #[test]
    fn the_state_does_not_depend_on_the_context(batch in 1u64..9, context in 1u64..500) {
        let model = model(Some(64));
        let state = used(&model, batch, context).state;
        prop_assert_eq!(state, kept(&model, 16).state * batch);
        let each: Bytes = (0..4).map(|layer| model.layer(layer).state_bytes()).sum();
        prop_assert_eq!(state, each * batch);
        prop_assert_eq!(used(&tiny_model(4), batch, context).state, Bytes::ZERO);
    }

    #[test]
    fn a_sequence_in_whole_blocks_keeps_what_the_plan_counts(
        window in prop::option::of(1u64..300), size in (1u64..9).prop_map(|size| size * 4), blocks in 1u64..60,
    ) {
        let model = model(window);
        prop_assert_eq!(kept(&model, size).at(size * blocks, size), used(&model, 1, size * blocks).kv);
    }
}

#[test]
fn a_plan_without_states_does_not_write_them() {
    let [without, with] = [tiny_model(4), model(None)].map(|model| {
        let used = used(&model, 2, 64);
        let text = serde_json::to_string(&used).unwrap();
        assert_eq!(serde_json::from_str::<MemoryUsage>(&text).unwrap(), used);
        text
    });
    assert!(!without.contains("state") && with.contains("state"), "{without} and {with}");
}

#[test]
fn in_every_preset_bytes_without_programs_are_those_of_the_programs() {
    let machine = Library::default().machine("rtx4090-desktop").unwrap();
    let (host, gpu) = (DeviceId(0), DeviceId(1));
    let [dram, own] = [host, gpu].map(|device| machine.device(device).memory);
    let ways = [(dram, host, host), (own, gpu, gpu), (dram, gpu, host), (dram, gpu, gpu)];
    let extent = RunExtent { batch: 3, context: 700, chunk: 128, step_tokens: 1 };
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        for turn in 0..ways.len() {
            let mut count = turn;
            let layers = (0..model.layers).map(|layer| {
                let kind = model.kind(layer);
                LayerPlacement::from_slices(kind, |sublayer| {
                    count += 1 + layer as usize % 3;
                    let (home, prefill, decode) = ways[count % ways.len()];
                    vec![whole_slice(model.shape(kind), sublayer, home, prefill, decode)]
                })
            });
            let layers = layers.collect();
            let (device, memory) = if turn == 0 { (host, dram) } else { (gpu, own) };
            let placement = Placement { layers, ..Placement::uniform(&model, device, memory) };
            let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
            let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
            let used = usage(&machine, &model, &FORMATS, &placement, &programs, &extent);
            assert_eq!(footprint(cost_model, &extent, &placement).unwrap(), used, "{name}, turn {turn}");
        }
    }
}

#[test]
fn a_gpus_scratch_is_the_same_whatever_it_computes() {
    let machine = Library::default().machine("rtx4090-desktop").unwrap();
    let (host, gpu) = (DeviceId(0), DeviceId(1));
    let [dram, own] = [host, gpu].map(|device| machine.device(device).memory);
    let extent = RunExtent { batch: 3, context: 700, chunk: 128, step_tokens: 1 };
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        let scratch = |placement: &Placement| {
            let programs = PhasePrograms::lower(&machine, &model, placement).unwrap();
            scratch_bytes(&machine, &programs, &model, &extent)[&gpu]
        };
        let (all, none) = (Placement::uniform(&model, gpu, own), Placement::uniform(&model, host, dram));
        let first = std::iter::once(all.layers[0].clone());
        let layers = first.chain(none.layers[1..].iter().cloned()).collect();
        assert_eq!(scratch(&Placement { layers, ..none }), scratch(&all), "{name}");
    }
}
