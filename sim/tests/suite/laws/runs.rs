//! Whole runs.

use crate::cases::cases;
use crate::machine::{machine, placed, placements, tiny_model};
use hwprofiles::{DType, DeviceId, Library, MemoryId, Seconds};
use planner::{CostModel, PhasePrograms, Placement, steps};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use scenarios::{Formats, Model, Phase, Step, Sublayer, WeightFormats, Workload};
use sim::{BatchRun, SimTime, Simulator, Tick, sampling_time};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn times_are_those_of_the_trace_and_the_same_run_gives_the_same_bytes(
        (model, placement) in placed(2),
        batch in 1u64..5, prompt in 1u64..100, output in 1u64..6, chunk in 1u64..64,
    ) {
        let machine = machine();
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let steps = steps(&Workload::new(batch, prompt, output), chunk);
        let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
        let run = BatchRun::new(cost_model, &programs, &steps);
        let (times, trace) = (run.times().unwrap(), run.trace("plan").unwrap());
        prop_assert_eq!(times.ttft, Seconds::from_nanos(trace.ttft_ns()));
        let tpot = |nanos: f64| nanos * 1e-9;
        match (times.tpot, trace.tpot_ns().map(tpot)) {
            (Some(ours), Some(theirs)) => prop_assert!((ours.get() / theirs - 1.0).abs() < 1e-12),
            (ours, theirs) => prop_assert!(ours.is_none() && theirs.is_none() && output == 1),
        }
        prop_assert_eq!(run.trace("plan").unwrap().to_json(), trace.to_json());

        // Steps follow each other without a gap, and events lie within their step.
        prop_assert_eq!(trace.steps.first().map(|span| span.start_ns), Some(0));
        prop_assert!(trace.steps.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
        prop_assert_eq!(trace.steps.iter().map(|span| span.step).collect::<Vec<_>>(), steps);
        for event in &trace.events {
            let span = &trace.steps[event.step as usize];
            prop_assert!(span.start_ns <= event.start_ns && event.end_ns <= span.end_ns);
        }
        let tasks = |span: &planner::StepSpan| programs.program(span.step.phase).tasks.len();
        prop_assert_eq!(trace.events.len(), trace.steps.iter().map(tasks).sum::<usize>());
        // The written trace reads back, so it also keeps the order that the reader checks.
        let text = trace.to_json();
        prop_assert_eq!(planner::Trace::from_json("t.json".as_ref(), &text).unwrap(), trace);
    }
}

#[test]
fn a_token_is_sampled_after_the_last_prefill_step_and_after_each_decode_step() {
    let (machine, model) = (machine(), tiny_model(2));
    let placement = Placement::uniform(&model, DeviceId(0), MemoryId(0));
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let steps = steps(&Workload::new(3, 40, 3), 16);
    let trace = BatchRun::new(cost_model, &programs, &steps).trace("plan").unwrap();
    let mut simulator = Simulator::new(cost_model);
    let sampled: Vec<_> = trace
        .steps
        .iter()
        .map(|span| {
            let tasks = simulator.step(programs.program(span.step.phase), &span.step).unwrap().duration;
            (span.end_ns - span.start_ns) - tasks.nanos()
        })
        .collect();
    let program = programs.program(Phase::Decode);
    let sampling =
        SimTime::rounding_up(sampling_time(&cost_model, program, &Step::decode(3, 40)), Tick::Nanosecond)
            .nanos();
    // 3 sequences · 160 tokens · 2 bytes at 10 GB/s.
    assert_eq!(sampling, 96);
    assert_eq!(sampled, [0, 0, sampling, sampling, sampling]);
}

#[test]
fn a_longer_context_makes_later_tokens_slower() {
    let (machine, model) = (machine(), tiny_model(2));
    let placement = Placement::uniform(&model, DeviceId(1), MemoryId(1));
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let tpot = |prompt: u64| {
        let steps = steps(&Workload::new(4, prompt, 8), 64);
        BatchRun::new(cost_model, &programs, &steps).times().unwrap().tpot.unwrap()
    };
    assert!(tpot(400) > tpot(40));
}

#[test]
fn a_format_without_measurements_is_a_clear_error() {
    let (machine, model) = (machine(), tiny_model(2));
    let placement = Placement::uniform(&model, DeviceId(0), MemoryId(0));
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let formats = Formats { weights: WeightFormats::all(DType::Int4), ..FORMATS };
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let steps = steps(&Workload::new(1, 4, 2), 4);
    let missing = BatchRun::new(cost_model, &programs, &steps).times().unwrap_err();
    assert!(missing.to_string().contains("device 'cpu' has no gemm rate for int4"), "{missing}");
}

/// The relative difference between the estimate of a run and its full simulation.
fn estimate_error(parts: &[(Placement, usize)], [batch, prompt, output, chunk]: [u64; 4]) -> f64 {
    let layers: Vec<_> = parts.iter().flat_map(|(one, count)| vec![one.layers[0].clone(); *count]).collect();
    let (machine, model) = (machine(), tiny_model(layers.len() as u64));
    let placement = Placement { layers, ..parts[0].0.clone() };
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let steps = steps(&Workload::new(batch, prompt, output), chunk);
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let whole = BatchRun::new(cost_model, &programs, &steps).times().unwrap();
    let workload =
        scenarios::Workload { batch, prompt_tokens: prompt, output_tokens: output, speculation: None };
    let sketch = sim::estimate(cost_model, &placement, &workload, chunk).unwrap();
    assert_eq!(sketch.tpot.is_some(), whole.tpot.is_some());
    // What a scorer keeps of other placements and chunks changes nothing.
    let score = sim::scorer(cost_model, workload);
    let equal =
        Placement { layers: vec![placement.layers[0].clone(); placement.layers.len()], ..placement.clone() };
    assert!(score(&equal, chunk).is_ok() && score(&placement, chunk + 1).is_ok());
    assert_eq!(score(&placement, chunk).unwrap(), sketch);
    assert_eq!(score(&placement, chunk).unwrap(), sketch);
    let off = |(a, b): (Seconds, Seconds)| (a.get() / b.get() - 1.0).abs();
    off((sketch.ttft, whole.ttft)).max(sketch.tpot.zip(whole.tpot).map_or(0.0, off))
}

/// A placement whose link is as busy as its devices settles late, or never. Such placements are
/// few, and their estimates are not far off.
#[test]
fn an_estimate_agrees_with_the_simulation_to_a_fraction_of_a_per_cent() {
    let parts = prop::collection::vec((placements(&tiny_model(1), &machine()), 1usize..40), 1..4);
    let cases = (parts, 1u64..5, 1u64..200, 1u64..20, 1u64..64);
    // The cases are the same every time, because a law about many cases need not hold for each.
    let mut runner = TestRunner::deterministic();
    let mut errors: Vec<f64> = (0..400)
        .map(|_| {
            let (parts, batch, prompt, output, chunk) = cases.new_tree(&mut runner).unwrap().current();
            estimate_error(&parts, [batch, prompt, output, chunk])
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let [median, most, worst] = [200, 395, 399].map(|rank| errors[rank]);
    assert!(median < 1e-3 && most < 0.01 && worst < 0.05, "{median}, {most}, {worst}");
}

/// What the last layer streams hides behind as many layers as there are, not behind the few of a
/// shortened run.
#[test]
fn an_estimate_sees_that_one_layer_streams_more_than_the_others() {
    let machine = Library::default().machine("gnr-h200").unwrap();
    let model = Model::preset("llama-3.1-70b").unwrap();
    let mut placement = Placement::uniform(&model, DeviceId(1), machine.devices[1].memory);
    placement.pipelining.slots = 16;
    for (at, layer) in placement.layers.iter_mut().enumerate() {
        for (sublayer, slices) in layer.kind.sublayers().iter().zip(layer.sublayers.iter_mut()) {
            let more = at == 79 && matches!(sublayer, Sublayer::Qkv | Sublayer::Out);
            if more || *sublayer == Sublayer::Attention {
                slices[0].home = machine.devices[0].memory;
            }
        }
    }
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let workload = Workload::new(1, 2048, 16);
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let whole = BatchRun::new(cost_model, &programs, &steps(&workload, 1024)).times().unwrap();
    let estimate = sim::estimate(cost_model, &placement, &workload, 1024).unwrap();
    let [whole, estimate] = [whole, estimate].map(|times| times.tpot.unwrap().get());
    assert!((estimate / whole - 1.0).abs() < 1e-4, "{estimate}, {whole}");
}
