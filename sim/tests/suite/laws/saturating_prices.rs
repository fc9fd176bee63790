//! Step prices where attention saturates, against the simulated steps of the same batches.

use crate::machine::{machine, tiny_experts, tiny_model};
use crate::unequal_layers;
use hwprofiles::{DType, DeviceId, Machine};
use planner::{CostModel, PhasePrograms, Placement};
use scenarios::{Formats, Model, Phase, Step, WeightFormats};
use sim::Simulator;
use sim::serving::{Batch, PlanPrices, PrefillChunk, StepPrices};
use std::cell::RefCell;
use std::collections::BTreeSet;

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// Everything on the GPU, or with the caches in the host's memory.
fn placements(machine: &Machine, model: &Model) -> [Placement; 2] {
    let gpu = DeviceId(1);
    let (hbm, dram) = (machine.device(gpu).memory, machine.device(DeviceId(0)).memory);
    let near = Placement::uniform(model, gpu, hbm);
    let mut far = near.clone();
    for layer in &mut far.layers {
        let sublayers = layer.kind.sublayers().iter().zip(layer.sublayers.iter_mut());
        for (_, slices) in sublayers.filter(|(sublayer, _)| **sublayer == scenarios::Sublayer::Attention) {
            slices.iter_mut().for_each(|slice| slice.home = dram);
        }
    }
    [near, far]
}

/// Calls `test` with prices and the exact time of a step, for every model and placement.
fn each(test: impl Fn(&str, &mut PlanPrices<'_>, &mut dyn FnMut(&Step) -> f64)) {
    let machine = machine();
    let plain = [tiny_model(4), tiny_experts(4)];
    for model in plain.into_iter().chain(unequal_layers::all()) {
        for placement in placements(&machine, &model) {
            let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
            let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
            let mut simulator = Simulator::new(cost_model);
            let mut exact = |step: &Step| {
                let program = programs.program(step.phase);
                simulator.step(program, step).unwrap().seconds().get()
            };
            test(&model.name, &mut PlanPrices::new(cost_model, &programs), &mut exact);
        }
    }
}

fn assert_close(name: &str, at: &dyn std::fmt::Debug, priced: f64, exact: f64, tolerance: f64) {
    assert!((priced - exact).abs() <= tolerance * exact, "{name} at {at:?}: {priced} and {exact}");
}

/// Prices lie on straight lines between contexts and between numbers of tokens.
const TOLERANCE: f64 = 0.005;

#[test]
fn decodes_of_equal_contexts_take_the_time_of_their_step() {
    each(|name, prices, exact| {
        for decodes in [1, 4, 16] {
            let mut priced =
                |tokens: u64| prices.decode(decodes, tokens).unwrap().at(tokens).to_seconds().get();
            // Sampling is not part of the simulated step. It does not depend on the context.
            let sampling = priced(decodes) - exact(&Step::decode(decodes, 0));
            for context in [1, 2, 15, 16, 17, 23, 24, 25, 40, 47, 48, 49, 63, 64, 65, 66, 100, 128, 129, 300]
            {
                let wanted = exact(&Step::decode(decodes, context - 1));
                let priced = priced(decodes * context) - sampling;
                assert_close(name, &(decodes, context), priced, wanted, TOLERANCE);
            }
        }
    });
}

#[test]
fn a_chunk_takes_the_time_of_its_step() {
    each(|name, prices, exact| {
        let mut priced = |new: u64, past: u64| {
            let chunks = [PrefillChunk { new, past }];
            let batch = Batch { chunks: &chunks, decodes: 0, decode_tokens: 0, sampled: 1 };
            prices.step(&batch).unwrap().to_seconds().get()
        };
        let step = |new: u64, past: u64| Step {
            phase: Phase::Prefill,
            batch: 1,
            new_tokens: new,
            past_tokens: past,
        };
        let sampling = priced(1, 0) - exact(&step(1, 0));
        for (new, past) in
            [(2, 0), (1, 100), (16, 0), (16, 200), (64, 0), (64, 10), (128, 64), (8, 70), (256, 250)]
        {
            assert_close(
                name,
                &(new, past),
                priced(new, past) - sampling,
                exact(&step(new, past)),
                TOLERANCE,
            );
        }
    });
}

#[test]
fn decodes_of_unequal_contexts_take_no_more_than_by_their_mean() {
    // Where attention saturates, the mean context is an upper bound. Chunks begin again, so they
    // have no such bound, nor have transfers that are hidden while they are short.
    let seen = RefCell::new(BTreeSet::new());
    each(|name, prices, exact| {
        let first = seen.borrow_mut().insert(name.to_owned());
        if name == "windows" || !first {
            return;
        }
        let contexts = [8, 400];
        let tokens = contexts.iter().sum();
        let priced = prices.decode(2, tokens).unwrap().at(tokens).to_seconds().get();
        let [short, long] = contexts.map(|context| exact(&Step::decode(2, context - 1)));
        assert!(priced >= (short + long) / 2.0 * (1.0 - TOLERANCE), "{name}: {priced}, {short}, {long}");
        assert!(priced <= long * (1.0 + TOLERANCE), "{name}: {priced} of {long}");
    });
}
