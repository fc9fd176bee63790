//! Whole runs.

use crate::machine::{machine, placed, placements, tiny_model};
use hwprofiles::{DType, DeviceId, MemoryId, Seconds};
use planner::{Placement, Pricing, Programs, steps};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use scenarios::{Formats, Phase, Step};
use sim::{Run, SimTime, Simulator, sampling_time};

const FORMATS: Formats = Formats { weights: DType::Bf16, kv: DType::Bf16, activations: DType::Bf16 };

/// By what share the estimate of a run differs from the whole simulation.
fn estimate_error(parts: &[(Placement, usize)], [batch, prompt, output, chunk]: [u64; 4]) -> f64 {
    let layers: Vec<_> = parts.iter().flat_map(|(one, count)| vec![one.layers[0].clone(); *count]).collect();
    let (machine, model) = (machine(), tiny_model(layers.len() as u64));
    let placement = Placement { layers, ..parts[0].0.clone() };
    let programs = Programs::lower(&machine, &model, &placement).unwrap();
    let steps = steps(batch, prompt, output, chunk);
    let pricing = Pricing { machine: &machine, model: &model, formats: &FORMATS };
    let whole = Run { pricing, programs: &programs, steps: &steps }.times().unwrap();
    let workload = scenarios::Workload { batch, prompt_tokens: prompt, output_tokens: output };
    let sketch = sim::estimate(pricing, &placement, &workload, chunk).unwrap();
    assert_eq!(sketch.tpot.is_some(), whole.tpot.is_some());
    let off = |(a, b): (Seconds, Seconds)| (a.get() / b.get() - 1.0).abs();
    off((sketch.ttft, whole.ttft)).max(sketch.tpot.zip(whole.tpot).map_or(0.0, off))
}

/// Placements whose link is as busy as their devices settle late, or never: they are few, and not off by much.
#[test]
fn an_estimate_is_the_whole_simulation_to_a_fraction_of_a_per_cent() {
    let parts = prop::collection::vec((placements(&tiny_model(1), &machine()), 1usize..40), 1..4);
    let cases = (parts, 1u64..5, 1u64..200, 1u64..20, 1u64..64);
    // The same cases every time: what is said of many is no law of each.
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
