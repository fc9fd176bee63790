//! The search around the solver's placements.

use crate::fixture::{Spec, formats, model};
use crate::scorer::roofline_times;
use hwprofiles::{Bytes, Machine, Memory};
use planner::{
    CostModel, Effort, PhaseTimes, Placement, Plan, PlannerError, Problem, plan, plan_improved, single_edits,
};
use proptest::prelude::*;
use scenarios::{Costs, Model, Objective, Requirements, Slo, Workload};

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };

fn requirements() -> Requirements {
    Requirements {
        workload: WORKLOAD,
        objective: Objective::Latency,
        slo: Slo::default(),
        costs: Costs::default(),
    }
}

fn latency(plan: &Plan) -> f64 {
    request_time(&plan.predicted.simulated)
}

fn request_time(times: &PhaseTimes) -> f64 {
    times.ttft.get() + times.tpot.unwrap().get() * (WORKLOAD.output_tokens - 1) as f64
}

fn planned(machine: &Machine, model: &Model, effort: Effort) -> Result<Plan, PlannerError> {
    let formats = formats();
    let cost_model = CostModel { machine, model, formats: &formats };
    let problem = Problem { cost_model, draft: None, requirements: requirements() };
    let score = |placement: &Placement, chunk| roofline_times(machine, model, &WORKLOAD, placement, chunk);
    if effort == Effort::SOLVE { plan(&problem, &score) } else { plan_improved(&problem, effort, &score) }
}

/// The latency of a plan ÷ that of the fastest of its single edits.
fn regret_of_edits(machine: &Machine, model: &Model, plan: &Plan) -> f64 {
    let formats = formats();
    let cost_model = CostModel { machine, model, formats: &formats };
    let problem = Problem { cost_model, draft: None, requirements: requirements() };
    let placement = plan.placement(machine, model).unwrap();
    let times = single_edits(&problem, &placement, plan.prefill_chunk)
        .into_iter()
        .filter_map(|(edited, chunk)| roofline_times(machine, model, &WORKLOAD, &edited, chunk).ok());
    let fastest = times.map(|times| request_time(&times)).fold(f64::INFINITY, f64::min);
    latency(plan) / fastest
}

/// A staging slot is shared: where there is room for one layer's, all layers can be fetched. Here
/// an edit that fetches all was 2 % better than the plan as long as each was counted with its own.
#[test]
fn layers_that_share_a_staging_slot_are_fetched_together() {
    let model = model(6, 256);
    let machine = Spec::gpu(5_464_578).machine(&model);
    let regret = regret_of_edits(&machine, &model, &planned(&machine, &model, Effort::PLAN).unwrap());
    println!("regret at 5,464,578 bytes: {regret:.4}");
    assert!(regret <= 1.01, "{regret}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(4)) })]
    #[test]
    fn the_search_is_never_worse_fits_repeats_and_no_edit_beats_it_by_much(capacity in 2_000_000u64..40_000_000) {
        let model = model(6, 256);
        let machine = Spec::gpu(capacity).machine(&model);
        let solved = planned(&machine, &model, Effort::SOLVE);
        prop_assume!(solved.is_ok());
        let solved = solved.unwrap();
        let searched = planned(&machine, &model, Effort::PLAN).unwrap();
        prop_assert!(latency(&searched) <= latency(&solved));
        for (memory, used) in machine.memories.iter().zip(searched.memory.values()) {
            prop_assert!(used.total() <= memory.capacity.value, "{}", memory.name);
        }
        prop_assert_eq!(&searched, &planned(&machine, &model, Effort::PLAN).unwrap());
        let summary = searched.predicted.search.as_ref().unwrap();
        prop_assert!(summary.improvement.get() >= 1.0 && summary.judged > 10);
        if let Some(rule) = &summary.best_rule {
            prop_assert!(rule.regret.get() >= 1.0 - 1e-12, "{}", rule.rule);
        }
        let regret = regret_of_edits(&machine, &model, &searched);
        prop_assert!(regret <= 1.01, "an edit is {regret} times as fast");
    }

    #[test]
    fn more_memory_is_never_worse(capacity in 2_000_000u64..40_000_000, more in 1u64..8_000_000) {
        let model = model(6, 256);
        let machine = Spec::gpu(capacity).machine(&model);
        let mut larger = machine.clone();
        let gpu = larger.memories.iter_mut().min_by_key(|memory: &&mut Memory| memory.capacity.value).unwrap();
        gpu.capacity.value += Bytes::new(more);
        let before = planned(&machine, &model, Effort::PLAN);
        prop_assume!(before.is_ok());
        let (before, after) = (latency(&before.unwrap()), latency(&planned(&larger, &model, Effort::PLAN).unwrap()));
        // The solver stops within 1 % of its bound; the search around its placement may end in
        // another local optimum of so few layers, 5.7 % apart at 21,991,374 bytes and 794,216
        // more.
        prop_assert!(after <= before * 1.08, "{after} after {before}");
    }
}

#[test]
fn what_is_short_is_the_memory_that_lacks_least_of_what_it_has() {
    let model = model(16, 1024);
    let mut machine = Spec::gpu(2_000_000).machine(&model);
    for memory in &mut machine.memories {
        // A large host and a small accelerator: neither holds the model alone, nor both.
        memory.capacity.value = Bytes::new(if memory.name == "dram" { 60_000_000 } else { 2_000_000 });
    }
    match planned(&machine, &model, Effort::PLAN) {
        Err(PlannerError::Infeasible { memory, needed, .. }) => {
            assert_eq!(memory, "dram");
            assert!(needed > Bytes::new(60_000_000));
        }
        other => panic!("{other:?}"),
    }
}
