//! The choice among number formats.

use crate::fixture::{Spec, model};
use hwprofiles::{DType, Machine, Seconds};
use planner::{
    Action, BestVariant, CostModel, Effort, PhasePrograms, PhaseTimes, Placement, PlannerError, Problem,
    Roofline, Scorer, Task, plan, plan_among, steps,
};
use proptest::prelude::*;
use scenarios::{
    Architecture, Costs, Experts, Formats, Model, Objective, Operator, Phase, Requirements, Slo, Step,
    WeightClass, WeightFormat, WeightFormats, Workload,
};

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };

const fn formats(weights: DType, kv: DType) -> Formats {
    Formats { weights: WeightFormats::all(weights), kv, activations: DType::F32 }
}

/// Most bits first, except for the last two: one without measured rates, and one with formats by
/// class.
const ALL: [Formats; 6] = [
    formats(DType::Bf16, DType::Bf16),
    formats(DType::Int8, DType::Bf16),
    formats(DType::Bf16, DType::Int8),
    formats(DType::Int4, DType::Int8),
    formats(DType::Fp8, DType::Bf16),
    MIXED,
];

const MIXED: Formats = Formats {
    weights: WeightFormats::all(DType::Bf16).with(WeightClass::Ffn, DType::Int4),
    ..formats(DType::Bf16, DType::Bf16)
};

/// A machine that computes int8 and int4 at the speed of bf16 or slower, so that they only save
/// memory.
fn machine(spec: Spec, model: &Model, slower: f64) -> Machine {
    let mut machine = spec.machine(model);
    let by = |rates: [f64; 2]| rates.map(|rate| rate / slower);
    let slow = Spec { flop: by(spec.flop), read: by(spec.read), ..spec }.machine(model);
    for (device, slow) in machine.devices.iter_mut().zip(slow.devices) {
        let slow = slow.gemm[&DType::Bf16].clone();
        let attention = device.attention[&DType::Bf16].clone();
        device.gemm.extend([(DType::Int8, slow.clone()), (DType::Int4, slow)]);
        device.attention.insert(DType::Int8, attention);
    }
    machine
}

/// Scores with the roofline of each step.
fn score(cost_model: CostModel<'_>, placement: &Placement, chunk: u64) -> Result<PhaseTimes, PlannerError> {
    let programs = PhasePrograms::lower(cost_model.machine, cost_model.model, placement)?;
    let (mut ttft, mut rest) = (Seconds::ZERO, Seconds::ZERO);
    for step in steps(&WORKLOAD, chunk) {
        let time = Roofline::new(&cost_model, programs.program(step.phase), &step)?.bound().0;
        match step.phase {
            Phase::Prefill => ttft += time,
            Phase::Decode => rest += time,
        }
    }
    Ok(PhaseTimes { ttft, tpot: Some(rest / (WORKLOAD.output_tokens - 1) as f64) })
}

fn judged(cost_model: CostModel<'_>, _: Workload) -> Box<Scorer<'_>> {
    Box::new(move |placement, chunk| score(cost_model, placement, chunk))
}

fn problem<'a>(machine: &'a Machine, model: &'a Model, objective: Objective, slo: Slo) -> Problem<'a> {
    let cost_model = CostModel { machine, model, formats: &ALL[0] };
    Problem {
        cost_model,
        draft: None,
        requirements: Requirements { workload: WORKLOAD, objective, slo, costs: Costs::default() },
    }
}

fn value(objective: Objective, times: &PhaseTimes) -> f64 {
    let tpot = times.tpot.unwrap().get();
    match objective {
        Objective::Tpot => tpot + 1e-4 * times.ttft.get(),
        _ => times.ttft.get() + tpot * (WORKLOAD.output_tokens - 1) as f64,
    }
}

fn chosen(
    machine: &Machine,
    model: &Model,
    formats: &[Formats],
    slo: Slo,
) -> Result<BestVariant, PlannerError> {
    plan_among(
        &problem(machine, model, Objective::Latency, slo),
        std::slice::from_ref(machine),
        None,
        formats,
        None,
        None,
        Effort::SOLVE,
        &judged,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(24)) })]
    #[test]
    fn the_choice_is_never_worse_than_any_single_format(
        capacity in 0u64..6_000_000, slower in 0.5..4.0f64, tpot in any::<bool>(), some in prop::sample::subsequence(ALL.to_vec(), 1..7),
    ) {
        let model = model(3, 256);
        let machine = machine(Spec::gpu(capacity), &model, slower);
        let objective = if tpot { Objective::Tpot } else { Objective::Latency };
        let problem = problem(&machine, &model, objective, Slo::default());
        let alone: Vec<_> = some.iter().map(|one| {
            let cost_model = CostModel { formats: one, ..problem.cost_model };
            plan(&Problem { cost_model, ..problem }, &|placement, chunk| score(cost_model, placement, chunk))
        }).collect();
        match plan_among(&problem, std::slice::from_ref(&machine), None, &some, None, None, Effort::SOLVE, &judged) {
            Ok(found) => {
                let best = value(objective, &found.plan.predicted.simulated);
                for (one, alone) in some.iter().zip(&alone) {
                    if let Ok(alone) = alone {
                        prop_assert!(best <= value(objective, &alone.predicted.simulated), "{one}");
                    }
                }
                let at = some.iter().position(|one| *one == found.plan.formats).unwrap();
                prop_assert_eq!(Ok(&found.plan), alone[at].as_ref().map_err(|_| ()));
            }
            Err(_) => prop_assert!(alone.iter().all(Result::is_err)),
        }
    }
}

#[test]
fn of_equals_the_one_of_most_bits_is_taken() {
    let model = model(3, 256);
    let machine = machine(Spec::loopback(1 << 30), &model, 1.0);
    fn same(_: CostModel<'_>, _: Workload) -> Box<Scorer<'_>> {
        Box::new(|_, _| Ok(PhaseTimes { ttft: Seconds::new(1.0), tpot: Some(Seconds::new(0.1)) }))
    }
    let problem = problem(&machine, &model, Objective::Latency, Slo::default());
    assert_eq!(
        plan_among(&problem, std::slice::from_ref(&machine), None, &ALL, None, None, Effort::SOLVE, &same)
            .unwrap()
            .plan
            .formats,
        crate::fixture::formats()
    );
}

#[test]
fn fewer_bits_win_where_they_leave_more_in_the_fast_memory() {
    let model = model(8, 256);
    let machine = machine(Spec::gpu(7_000_000), &model, 1.0);
    let found = chosen(&machine, &model, &ALL, Slo::default()).unwrap();
    assert_eq!(found.plan.formats.weights, DType::Int4, "{:?}", found.outcomes);
}

/// A model like gpt-oss: most of its weights are experts.
fn mixture() -> Model {
    Model { architecture: Architecture::GptOss, experts: Some(Experts::new(8, 2, 256)), ..model(4, 256) }
}

#[test]
fn experts_in_four_bits_beside_attention_in_sixteen_cost_what_each_costs() {
    let model = mixture();
    let machine = machine(Spec::gpu(1 << 30), &model, 3.0);
    let weights = WeightFormats::all(DType::Bf16).with(WeightClass::Experts, DType::Int4);
    let mixed = Formats { weights, ..ALL[0] };
    let int4 = Formats { weights: DType::Int4.into(), ..ALL[0] };
    let of = |task: &Task, formats: &Formats, step: &Step| {
        CostModel { machine: &machine, model: &model, formats }.task_cost(task, step).unwrap()
    };
    let placement =
        Placement::uniform(&model, machine.device_ids().next().unwrap(), machine.devices[0].memory);
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let mut experts = 0;
    for step in [Step::prefill(2, 96), Step::decode(2, 96)] {
        for task in &programs.program(step.phase).tasks {
            let is_expert = matches!(task.action, Action::Compute { operator: Operator::Experts, .. });
            let alone = if is_expert { &int4 } else { &ALL[0] };
            assert_eq!(of(task, &mixed, &step), of(task, alone, &step), "{task:?}");
            if is_expert {
                experts += 1;
                assert_ne!(of(task, &mixed, &step), of(task, &ALL[0], &step), "the format matters");
            }
        }
    }
    assert_eq!(experts, 2 * model.layers);
}

#[test]
fn a_mixture_of_formats_costs_their_mean_by_shares() {
    let model = model(2, 256);
    let machine = machine(Spec::gpu(1 << 30), &model, 3.0);
    let parts = WeightFormat::from_values([(DType::Bf16, 3), (DType::Int4, 1)]).unwrap();
    let mixed = Formats { weights: parts.into(), ..ALL[0] };
    let int4 = Formats { weights: DType::Int4.into(), ..ALL[0] };
    let placement =
        Placement::uniform(&model, machine.device_ids().next().unwrap(), machine.devices[0].memory);
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let step = Step::decode(2, 96);
    let alone = |task: &Task, formats: &Formats| {
        let cost_model = CostModel { machine: &machine, model: &model, formats };
        let cost = cost_model.task_cost(task, &step).unwrap();
        let bytes: f64 = cost.loads.iter().flatten().map(|load| load.bytes.as_f64()).sum();
        [cost.alone.get() - cost.overhead.get(), bytes]
    };
    let mut products = 0;
    for task in &programs.program(step.phase).tasks {
        let (bf16, int4, mixed) = (alone(task, &ALL[0]), alone(task, &int4), alone(task, &mixed));
        let mean = |at: usize| 0.75 * bf16[at] + 0.25 * int4[at];
        // Each part of the mean may be bound by something else, so the mixture is at most as slow.
        assert!(mixed[0] <= mean(0) * 1.0001 && mixed[0] >= mean(0) * 0.9, "{task:?}: {mixed:?} {}", mean(0));
        assert!((mixed[1] - mean(1)).abs() <= 1e-3 * mean(1), "{task:?}: {mixed:?} {}", mean(1));
        products += u64::from(bf16[1] != int4[1]);
    }
    assert!(products >= 4 * model.layers, "{products} products");
}

#[test]
fn experts_alone_get_fewer_bits_where_that_is_enough() {
    let model = mixture();
    let machine = machine(Spec::gpu(8_000_000), &model, 1.0);
    let experts = Formats {
        weights: WeightFormats::all(DType::Bf16).with(WeightClass::Experts, DType::Int4),
        ..ALL[0]
    };
    let found = chosen(&machine, &model, &[ALL[0], experts], Slo::default()).unwrap();
    assert_eq!(found.plan.formats, experts, "{:?}", found.outcomes);
    // The document names the format and can be read again.
    let text = found.plan.to_yaml();
    assert!(text.contains("experts: int4") && text.contains("attention: bf16"), "{text}");
    assert_eq!(planner::Plan::from_yaml(&text, "plan.yaml").unwrap(), found.plan);
}

#[test]
fn what_has_no_rate_or_no_plan_is_left_out_with_its_reason() {
    let model = model(3, 256);
    let machine = machine(Spec::gpu(1 << 30), &model, 1.0);
    let found = chosen(&machine, &model, &ALL, Slo::default()).unwrap();
    assert_eq!(found.outcomes.len(), ALL.len());
    let (_, missing) = &found.outcomes[4];
    assert!(missing.as_ref().unwrap_err().to_string().contains("fp8"), "{missing:?}");

    // A limit that the fastest format keeps and the slow ones do not.
    let machine = self::machine(Spec::gpu(1 << 30), &model, 50.0);
    let all: Vec<_> = chosen(&machine, &model, &ALL[..4], Slo::default()).unwrap().outcomes;
    let ttft = |at: usize| all[at].1.as_ref().unwrap().ttft;
    assert!(ttft(0) * 2.0 < ttft(1));
    let slo = Slo { ttft: Some(ttft(0) * 2.0), tpot: None };
    let found = chosen(&machine, &model, &ALL[..4], slo).unwrap();
    assert_eq!(found.plan.formats.weights, DType::Bf16);
    assert!(matches!(found.outcomes[1].1, Err(PlannerError::TooSlow { .. })));
}

#[test]
fn where_none_is_left_each_is_named_and_one_alone_keeps_its_own_error() {
    let model = model(3, 256);
    let machine = Spec::gpu(1 << 30).machine(&model);
    let none = [formats(DType::Fp8, DType::Bf16), formats(DType::Int4, DType::Bf16)];
    let error = chosen(&machine, &model, &none, Slo::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("weights fp8, kv bf16") && text.contains("weights int4, kv bf16"), "{text}");
    assert!(!error.is_infeasible(), "a rate can be measured");
    let alone = chosen(&machine, &model, &none[..1], Slo::default()).unwrap_err();
    assert!(matches!(alone, PlannerError::Missing(_)), "{alone}");
    let slo = Slo { ttft: Some(Seconds::new(1e-9)), tpot: None };
    let late = chosen(&machine, &model, &[ALL[0], none[0]], slo).unwrap_err();
    assert!(late.is_infeasible() && matches!(late, PlannerError::NoFormat { .. }), "{late}");
}
