//! Drafts: which device they are on, and when the planner does without one.

use crate::fixture::{Spec, formats, model};
use hwprofiles::{Bytes, DeviceId, Machine, MemoryId, Ratio};
use planner::{
    BestVariant, CostModel, DraftModel, DraftPlan, Effort, PhaseTimes, Plan, PlannerError, Problem, Scorer,
    plan, plan_among,
};
use proptest::prelude::*;
use scenarios::{Costs, Model, Objective, Requirements, Slo, Speculation, Workload};

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 33, speculation: None };

fn score(cost_model: CostModel<'_>, workload: Workload) -> Box<Scorer<'_>> {
    let CostModel { machine, model, .. } = cost_model;
    Box::new(move |placement, chunk| {
        crate::scorer::roofline_times(machine, model, &workload, placement, chunk)
    })
}

fn speculation(tokens: u64, acceptance: f64) -> Speculation {
    Speculation { tokens, acceptance: Ratio::new(acceptance).unwrap() }
}

fn asked(
    machine: &Machine,
    model: &Model,
    draft: Option<(&Model, &[Speculation])>,
    objective: Objective,
    slo: Slo,
) -> Result<BestVariant, PlannerError> {
    let formats = formats();
    let cost_model = CostModel { machine, model, formats: &formats };
    let problem = Problem {
        cost_model,
        draft: None,
        requirements: Requirements { workload: WORKLOAD, objective, slo, costs: Costs::default() },
    };
    let draft = draft.map(|(model, choices)| DraftModel { model, choices });
    plan_among(&problem, std::slice::from_ref(machine), None, &[formats], draft, None, Effort::SOLVE, &score)
}

/// The run's time, or the time per token.
fn value(objective: Objective, times: &PhaseTimes) -> f64 {
    let tpot = times.tpot.unwrap().get();
    match objective {
        Objective::Tpot => tpot + 1e-4 * times.ttft.get(),
        _ => times.ttft.get() + tpot * (WORKLOAD.output_tokens - 1) as f64,
    }
}

fn held(plan: &Plan, machine: &Machine) -> Vec<Bytes> {
    let of = |memory: &hwprofiles::Memory| {
        let draft = plan.draft.iter().filter_map(|draft| draft.memory.get(&memory.name));
        draft.chain(plan.memory.get(&memory.name)).map(|used| used.total()).sum()
    };
    machine.memories.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(24)) })]
    #[test]
    fn a_draft_is_taken_where_it_is_worth_it_and_everything_fits_beside_it(
        capacity in 0u64..9_000_000, width in 0usize..3, acceptance in 0.05..1.0f64, tpot in any::<bool>(),
    ) {
        let (model, draft) = (model(4, 512), crate::fixture::model(1, [64, 128, 512][width]));
        let machine = Spec::gpu(capacity).machine(&model);
        let objective = if tpot { Objective::Tpot } else { Objective::Latency };
        let choices = [1, 3].map(|tokens| speculation(tokens, acceptance));
        let alone = asked(&machine, &model, None, objective, Slo::default()).unwrap();
        let found = asked(&machine, &model, Some((&draft, &choices)), objective, Slo::default()).unwrap();
        let best = value(objective, &found.plan.predicted.simulated);
        prop_assert!(best <= value(objective, &alone.plan.predicted.simulated));
        // No draft, then both numbers of tokens on both devices. The planner takes the least value.
        prop_assert_eq!(found.outcomes.len(), 5);
        let outcomes = found.outcomes.iter().filter_map(|(_, times)| times.as_ref().ok());
        let least = outcomes.map(|times| value(objective, times)).fold(f64::INFINITY, f64::min);
        prop_assert!((best - least).abs() <= 1e-9 * least);
        for (held, memory) in held(&found.plan, &machine).iter().zip(&machine.memories) {
            prop_assert!(*held <= memory.capacity.value, "{}", memory.name);
        }
        let (read, _) = Plan::read(&found.plan.to_yaml(), "plan.yaml", &machine, &model).unwrap();
        prop_assert_eq!(read, found.plan);
    }
}

#[test]
fn a_draft_that_is_never_believed_is_left_out() {
    let (model, draft) = (model(4, 512), model(4, 512));
    let machine = Spec::gpu(1 << 30).machine(&model);
    let alone = asked(&machine, &model, None, Objective::Tpot, Slo::default()).unwrap();
    let choices = [speculation(4, 0.01)];
    let found = asked(&machine, &model, Some((&draft, &choices)), Objective::Tpot, Slo::default()).unwrap();
    assert_eq!(found.plan, alone.plan);
}

#[test]
fn one_that_always_is_makes_several_tokens_of_a_step() {
    // The model's weights are so large that a step of four tokens hardly takes longer than one of
    // one token.
    let (model, draft) = (model(8, 2048), crate::fixture::model(1, 64));
    let machine = Spec::gpu(1 << 30).machine(&model);
    let tpot = |found: &BestVariant| found.plan.predicted.simulated.tpot.unwrap();
    let alone = asked(&machine, &model, None, Objective::Tpot, Slo::default()).unwrap();
    let choices = [speculation(3, 1.0)];
    let found = asked(&machine, &model, Some((&draft, &choices)), Objective::Tpot, Slo::default()).unwrap();
    let gain = tpot(&alone) / tpot(&found);
    assert!((2.0..4.0).contains(&gain), "{gain}");
    // The prediction is the sum of its parts: the model's steps, and the draft's time before each
    // of them.
    let draft = found.plan.draft.as_ref().unwrap();
    assert_eq!((found.plan.workload.decode_steps(), draft.device.as_str()), (8, "acc"));
    // The planner uses a draft to keep a limit.
    let slo = Slo { tpot: Some(tpot(&found) * 1.01), ttft: None };
    assert!(asked(&machine, &model, None, Objective::Latency, slo).is_err());
    let small = crate::fixture::model(1, 64);
    let kept = asked(&machine, &model, Some((&small, &choices)), Objective::Latency, slo).unwrap();
    assert!(tpot(&kept) <= slo.tpot.unwrap());
}

#[test]
fn a_gpu_that_the_model_fills_sends_the_draft_to_the_host() {
    let (model, draft) = (model(4, 512), model(2, 512));
    let formats = formats();
    let all = Spec::gpu(1 << 30).machine(&model);
    let cost_model = CostModel { machine: &all, model: &draft, formats: &formats };
    let workload = Workload { speculation: Some(speculation(2, 0.9)), ..WORKLOAD };
    let (beside, _) = DraftPlan::new(cost_model, DeviceId(1), &workload, &score).unwrap().unwrap();
    let needed = beside.placed.memory["vram"].total();
    // The GPU has one byte less than the draft needs.
    let small = Spec::gpu(needed.get() - 1).machine(&model);
    let cost_model = CostModel { machine: &small, ..cost_model };
    assert!(DraftPlan::new(cost_model, DeviceId(1), &workload, &score).unwrap().is_none());
    let (on_host, left) = DraftPlan::new(cost_model, DeviceId(0), &workload, &score).unwrap().unwrap();
    assert_eq!(on_host.placed.device, "cpu");
    let (dram, vram) = (MemoryId(0), MemoryId(1));
    assert_eq!(left.memory(vram).capacity, small.memory(vram).capacity);
    let taken = on_host.placed.memory["dram"].total();
    assert_eq!(left.memory(dram).capacity.value + taken, small.memory(dram).capacity.value);
}

#[test]
fn a_plan_whose_draft_has_no_room_is_refused() {
    let (model, draft) = (model(4, 512), crate::fixture::model(1, 64));
    let machine = Spec::gpu(1 << 30).machine(&model);
    let choices = [speculation(3, 1.0)];
    let found = asked(&machine, &model, Some((&draft, &choices)), Objective::Tpot, Slo::default()).unwrap();
    let read =
        |plan: &Plan| Plan::read(&plan.to_yaml(), "plan.yaml", &machine, &model).unwrap_err().to_string();
    let mut plan = found.plan;
    let placed = plan.draft.as_mut().unwrap();
    placed.memory.get_mut("vram").unwrap().weights = Bytes::new(1 << 30);
    assert!(read(&plan).contains("draft.memory"), "{}", read(&plan));
    plan.draft.as_mut().unwrap().device = "tpu".to_owned();
    let said = read(&plan);
    assert!(
        said.contains("draft.device") && said.contains("tpu") && said.contains("one of cpu, acc"),
        "{said}"
    );
}

#[test]
fn no_draft_is_the_plan_that_there_was() {
    let model = model(4, 512);
    let machine = Spec::loopback(3_000_000).machine(&model);
    let found = asked(&machine, &model, None, Objective::Latency, Slo::default()).unwrap();
    let formats = formats();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let problem = Problem {
        cost_model,
        draft: None,
        requirements: Requirements { workload: WORKLOAD, objective, slo, costs },
    };
    assert_eq!(plan(&problem, &score(cost_model, WORKLOAD)).unwrap(), found.plan);
}
