//! Laws of a training step whose state is in the host's memory. `cargo test -p fulcrum-sim --test
//! suite training -- --nocapture` prints the rows of BENCHMARKS.md.

use crate::cases::cases;
use crate::machine;
use hwprofiles::{Bytes, DType, Flop, Library, Machine, Seconds};
use planner::{CostModel, PlannerError, Trace, TrainingStep};
use proptest::prelude::*;
use scenarios::{Formats, Model, Operator, Phase, Step, Sublayer, Training, WeightFormats, Work};
use sim::training_trace;
use std::collections::BTreeMap;

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

fn h100() -> Machine {
    Library::default().machine("h100-sxm").unwrap()
}

fn trained(
    machine: &Machine,
    model: &Model,
    training: Training,
) -> Result<(TrainingStep, Trace), PlannerError> {
    let cost_model = CostModel { machine, model, formats: &BF16 };
    let step = TrainingStep::new(cost_model, &training)?;
    let trace = training_trace(cost_model, &training, &step);
    Ok((step, trace))
}

fn seconds(trace: &Trace) -> f64 {
    Seconds::from_nanos(trace.steps[0].end_ns).get()
}

/// FLOP of the layers' forward pass, and of the head's forward pass for every token.
fn forward(model: &Model, training: Training) -> [u128; 2] {
    let step = Step::prefill(training.sequences, training.tokens);
    let every = Step { phase: Phase::Decode, ..step };
    let flop_of = |sublayer: Sublayer, step: &Step| -> u128 {
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        let works = sublayer
            .operators(model)
            .iter()
            .map(|op: &Operator| Work::count(*op, model, &BF16, step, &(0..rows)));
        works.map(|work| work.flop.get()).sum()
    };
    let layer: u128 = Sublayer::DENSE.iter().map(|&sublayer| flop_of(sublayer, &step)).sum();
    [layer * u128::from(model.layers), flop_of(Sublayer::Head, &every)]
}

/// Bytes of all layers' matrices, and of the head's.
fn matrices(model: &Model) -> [Bytes; 2] {
    let bytes_of = |sublayer: &Sublayer| {
        let rows = sublayer.matrix(model).map_or(0, |(rows, _)| rows);
        sublayer.matrix_bytes(model, BF16.weights, &(0..rows))
    };
    [Sublayer::DENSE.iter().map(bytes_of).sum::<Bytes>() * model.layers, bytes_of(&Sublayer::Head)]
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn a_step_does_its_work_moves_its_bytes_and_beats_no_roofline(
        layers in 1u64..9, sequences in 1u64..5, tokens in 1u64..300, tied in any::<bool>(), wide in any::<bool>(),
    ) {
        let mut model = machine::tiny_model(layers);
        model.tied_embeddings = tied;
        if wide {
            (model.hidden, model.heads, model.kv_heads, model.head_dim, model.intermediate) = (1024, 8, 4, 128, 3072);
        }
        let (machine, training) = (h100(), Training { sequences, tokens });
        let (step, trace) = trained(&machine, &model, training).unwrap();
        // The forward pass, its recomputation, and twice that for the backward pass. The head is
        // not recomputed.
        let [layers_flop, head] = forward(&model, training);
        let flop: Flop = trace.events.iter().map(|event| event.flop).sum();
        prop_assert_eq!(flop.get(), 4 * layers_flop + 3 * head);
        // Weights for each pass, gradients once.
        let [weights, head] = matrices(&model);
        let over = |link: &str| -> Bytes {
            trace.events.iter().filter(|event| event.lane == link).map(|event| event.bytes).sum()
        };
        prop_assert_eq!(over("dram->gpu"), weights * 2 + head);
        prop_assert_eq!(over("gpu->dram"), weights + head);
        // Every parameter has a state and is updated once.
        let updates = trace.events.iter().filter(|event| event.name.starts_with("update"));
        let [mut updated, mut parameters] = [0, 0];
        for event in updates {
            updated += event.bytes.get();
            parameters += event.bytes.get() / 28;
        }
        prop_assert_eq!(updated, parameters * 28);
        prop_assert_eq!(parameters, model.parameters().get());
        let mut lanes: BTreeMap<&str, u64> = BTreeMap::new();
        for (event, price) in trace.events.iter().zip(&step.prices) {
            prop_assert!(event.end_ns - event.start_ns >= price.alone.to_nanos_ceil());
            *lanes.entry(&event.lane).or_default() += event.end_ns - event.start_ns;
        }
        let took = trace.steps[0].end_ns;
        prop_assert!(lanes.values().all(|busy| *busy <= took));
        for (index, memory) in machine.memories.iter().enumerate() {
            let loads = step.prices.iter().flat_map(|price| price.loads).flatten();
            let bytes: Bytes = loads.filter(|load| load.memory.0 == index).map(|load| load.bytes).sum();
            prop_assert!((bytes / memory.bandwidth.value).get() <= seconds(&trace) * (1.0 + 1e-9));
        }
        let (_, more) = trained(&machine, &model, Training { tokens: tokens * 2, ..training }).unwrap();
        // Fitted products of few rows are noisy: two may take a little less than one.
        prop_assert!(seconds(&more) >= seconds(&trace) * 0.95);
        prop_assert_eq!(trained(&machine, &model, training).unwrap().1.to_json(), trace.to_json());
    }
}

/// With two slots on each side, a layer's weights come when the layer before the last one is done.
/// Its gradients begin when those of the layer before the last one have left, and leave when those
/// are updated.
#[test]
fn two_layers_are_on_the_accelerator_and_no_more() {
    let (machine, model) = (h100(), machine::tiny_model(9));
    let (_, trace) = trained(&machine, &model, Training { sequences: 2, tokens: 64 }).unwrap();
    let spans_of = |name: &str| {
        let mut spans: Vec<(u64, u64)> = vec![];
        let mut before = None;
        for event in trace.events.iter().filter(|event| event.layer.is_some()) {
            // A visit is a row of tasks of one layer and one name, without another layer between
            // them.
            if event.name.starts_with(name) {
                match spans.last_mut().filter(|_| before == event.layer) {
                    Some(span) => span.1 = event.end_ns,
                    None => spans.push((event.start_ns, event.end_ns)),
                }
                before = event.layer;
            }
        }
        spans
    };
    let (back, stores, updates) = (spans_of("backward"), spans_of("store gradients"), spans_of("update"));
    assert_eq!([back.len(), stores.len(), updates.len()], [9, 9, 9]);
    for visit in 2..9 {
        assert!(back[visit].0 >= stores[visit - 2].1 && stores[visit].0 >= updates[visit - 2].1, "{visit}");
    }
    let fetches: Vec<_> = trace.events.iter().filter(|event| event.name == "fetch qkv").collect();
    let last: Vec<_> = trace.events.iter().filter(|event| event.name == "ffn_add").collect();
    assert_eq!([fetches.len(), last.len()], [18, 18]);
    for visit in 2..18 {
        let free = if visit < 11 { last[visit - 2].end_ns } else { back[visit - 11].1 };
        assert!(fetches[visit].start_ns >= free, "{visit}");
    }
}

#[test]
fn few_tokens_wait_for_the_link_and_many_for_the_accelerator() {
    let (machine, model) = (h100(), Model::preset("qwen2.5-7b").unwrap());
    let step =
        |sequences| seconds(&trained(&machine, &model, Training { sequences, tokens: 2048 }).unwrap().1);
    let link = machine.links.iter().find(|link| link.name == "dram->gpu").unwrap();
    let [weights, head] = matrices(&model);
    let streamed = (weights * 2 + head) / link.bandwidth.value;
    let few = step(1);
    assert!(few >= streamed.get());
    // If the accelerator binds, twice the tokens take nearly twice as long, and MFU rises.
    let (eight, sixteen) = (step(8), step(16));
    println!(
        "qwen2.5-7b on an H100: {few:.2} s for 1, {eight:.2} s for 8, {sixteen:.2} s for 16 sequences of 2048; fetches {streamed}"
    );
    assert!(sixteen / eight > 1.5 && eight / few < 8.0, "{few} {eight} {sixteen}");
    let rate = |sequences: u64, time: f64| {
        let [layers, head] = forward(&model, Training { sequences, tokens: 2048 });
        (3 * layers + 3 * head) as f64 / time
    };
    println!("model FLOP/s: {:.3e} {:.3e} {:.3e}", rate(1, few), rate(8, eight), rate(16, sixteen));
    assert!(rate(1, few) < rate(8, eight) && rate(8, eight) < rate(16, sixteen));
}

#[test]
fn a_model_that_cannot_be_trained_is_named() {
    let training = Training { sequences: 8, tokens: 2048 };
    let said = |machine: &Machine, model: &str| {
        trained(machine, &Model::preset(model).unwrap(), training).unwrap_err().to_string()
    };
    let too_large = said(&h100(), "llama-3.1-70b");
    assert!(too_large.contains("dram"), "{too_large}");
    let experts = said(&h100(), "qwen3-30b-a3b");
    assert!(experts.contains("a mixture of experts") && experts.contains("a dense model"), "{experts}");
    let several = said(&machine::machine(), "qwen2.5-0.5b");
    assert!(several.contains("3 devices") && several.contains("one accelerator"), "{several}");
    let four = Library::default().machine_with("h100-sxm", 4).unwrap().with_tensor_parallel(4).unwrap();
    let grouped = said(&four, "qwen2.5-0.5b");
    assert!(grouped.contains("4 accelerators as one"), "{grouped}");
    let (machine, model) = (h100(), Model::preset("qwen2.5-0.5b").unwrap());
    let formats = Formats { weights: WeightFormats::all(DType::Int8), ..BF16 };
    let coarse =
        TrainingStep::new(CostModel { machine: &machine, model: &model, formats: &formats }, &training);
    assert!(coarse.unwrap_err().to_string().contains("weights in int8"));
}
