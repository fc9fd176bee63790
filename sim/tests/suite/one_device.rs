//! Plans whose numbers alone are asked for are as good as those of the whole search.

use crate::cases::cases;
use hwprofiles::{DType, Library};
use planner::{CostModel, Effort, Plan, Problem, plan_improved};
use proptest::prelude::*;
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};

const MACHINES: [&str; 6] =
    ["spr-h100", "rtx4090-desktop", "gh200", "spr-a100-cxl", "xeon-8480p-48c", "ryzen-ai-max-395-64gb"];
const MODELS: [&str; 6] =
    ["opt-125m", "llama-3.2-1b", "gemma-2-2b", "llama-3.1-8b", "gpt-oss-20b", "falcon-7b"];

fn latency(plan: &Plan) -> f64 {
    let times = &plan.predicted.simulated;
    times.ttft.get() + times.tpot.map_or(0.0, |tpot| tpot.get()) * (plan.workload.output_tokens - 1) as f64
}

/// The latencies of the plans of both efforts, and whether the first needed no search; `None` if
/// nothing fits.
fn planned(machine: &str, model: &str, [batch, prompt, output]: [u64; 3]) -> Option<([f64; 2], bool)> {
    let (machine, model) = (Library::default().machine(machine).unwrap(), Model::preset(model).unwrap());
    let weights = WeightFormats::all(DType::Bf16);
    let formats = Formats { weights, kv: DType::Bf16, activations: DType::Bf16 };
    let workload = Workload::new(batch, prompt, output);
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let requirements = Requirements { workload, objective, slo, costs };
    let problem = Problem { cost_model, draft: None, requirements };
    let plan = |effort| plan_improved(&problem, effort, &*sim::scorer(cost_model, workload)).ok();
    let (numbers, solved) = (plan(Effort::SWEEP)?, plan(Effort::SOLVE)?);
    let found_at_once = numbers.predicted.baselines.len() == 1;
    Some(([latency(&numbers), latency(&solved)], found_at_once))
}

proptest! {
    #![proptest_config(cases(48))]
    #[test]
    fn numbers_alone_are_those_of_the_search(
        machine in prop::sample::select(&MACHINES[..]),
        model in prop::sample::select(&MODELS[..]),
        batch in prop::sample::select(vec![1u64, 2, 7, 32]),
        prompt in prop::sample::select(vec![1u64, 100, 1024, 4096]),
        output in prop::sample::select(vec![1u64, 2, 64, 512]),
    ) {
        if let Some(([numbers, solved], _)) = planned(machine, model, [batch, prompt, output]) {
            // The search ends within 1 % of its bound.
            let ratio = numbers / solved;
            prop_assert!((0.99..=1.001).contains(&ratio), "{numbers} {solved}");
        }
    }
}

#[test]
fn a_small_model_on_a_large_gpu_needs_no_search() {
    for load in [[1, 128, 128], [8, 1024, 128], [32, 4096, 128]] {
        let (latencies, found_at_once) = planned("spr-h100", "llama-3.1-8b", load).expect("it fits");
        assert!(found_at_once, "{load:?} {latencies:?}");
    }
}
