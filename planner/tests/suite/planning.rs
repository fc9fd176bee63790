//! Plans: from the problem to the file and back.

use crate::fixture::{Spec, formats, model};
use crate::scorer::roofline_times;
use hwprofiles::{Bytes, Machine, Seconds};
use planner::{
    CostModel, PLANNED, PhasePrograms, PhaseTimes, Placement, Plan, PlannerError, Problem, Rule, RunExtent,
    explain, plan, usage,
};
use proptest::prelude::*;
use scenarios::{Costs, Model, Objective, Requirements, Slo, Workload};

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };

fn problem<'a>(cost_model: CostModel<'a>, workload: &Workload, objective: Objective) -> Problem<'a> {
    Problem {
        cost_model,
        draft: None,
        requirements: Requirements {
            workload: *workload,
            objective,
            slo: Slo::default(),
            costs: Costs::default(),
        },
    }
}

fn planned(spec: Spec, model: &Model, workload: &Workload) -> Result<(Machine, Plan), PlannerError> {
    let (machine, formats) = (spec.machine(model), formats());
    let cost_model = CostModel { machine: &machine, model, formats: &formats };
    let score = |placement: &Placement, chunk| roofline_times(&machine, model, workload, placement, chunk);
    let plan = plan(&problem(cost_model, workload, Objective::Latency), &score)?;
    Ok((machine, plan))
}

fn latency(times: &PhaseTimes) -> f64 {
    times.ttft.get() + times.tpot.map_or(0.0, |tpot| tpot.get() * (WORKLOAD.output_tokens - 1) as f64)
}

#[test]
fn two_equal_devices_share_the_matrices_and_beat_one() {
    let model = model(4, 1024);
    let (machine, plan) = planned(Spec::loopback(200_000_000), &model, &WORKLOAD).unwrap();
    assert_eq!(plan.predicted.chosen, PLANNED);
    assert!(
        plan.layers.iter().any(|group| group.ffn_up.as_ref().unwrap().0.len() == 2),
        "{}",
        plan.to_yaml()
    );
    let baselines = &plan.predicted.baselines;
    assert_eq!(baselines.len(), Rule::ALL.len(), "{:?}", plan.predicted.without);
    for times in baselines.values() {
        assert!(latency(&plan.predicted.simulated) < latency(times));
    }
    assert!(plan.placement(&machine, &model).is_ok());
}

#[test]
fn a_device_that_bytes_cannot_leave_or_cannot_reach_is_planned_around() {
    let (model, formats) = (model(4, 256), formats());
    for kept in ["up", "down"] {
        let mut machine = Spec::gpu(3_000_000).machine(&model);
        machine.links.retain(|link| link.name == kept);
        assert_eq!(machine.links.len(), 1);
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let score =
            |placement: &Placement, chunk| roofline_times(&machine, &model, &WORKLOAD, placement, chunk);
        let plan = plan(&problem(cost_model, &WORKLOAD, Objective::Latency), &score).unwrap();
        assert!(PhasePrograms::lower(&machine, &model, &plan.placement(&machine, &model).unwrap()).is_ok());
        let without = &plan.predicted.without["all-streamed"];
        assert!(without.contains("vram") && without.contains("dram"), "{without}");
    }
}

#[test]
fn the_same_question_has_the_same_answer_byte_for_byte() {
    let model = model(5, 256);
    for spec in [Spec::loopback(2_000_000), Spec::gpu(3_000_000)] {
        let [one, two] = [0, 1].map(|_| planned(spec, &model, &WORKLOAD).unwrap().1.to_yaml());
        assert_eq!(one, two);
    }
}

#[test]
fn a_plan_reads_back_as_it_was_written() {
    let model = model(5, 256);
    for capacity in [0, 2_000_000, 4_000_000, 50_000_000] {
        let (machine, plan) = planned(Spec::gpu(capacity), &model, &WORKLOAD).unwrap();
        let text = plan.to_yaml();
        let (again, placement) = Plan::read(&text, "plan.yaml", &machine, &model).unwrap();
        assert_eq!(again, plan);
        assert_eq!(placement, plan.placement(&machine, &model).unwrap());
        assert_eq!(again.fingerprint(), plan.fingerprint());
    }
}

#[test]
fn only_slots_that_are_not_two_and_parts_that_are_not_one_stand_in_the_file_and_slots_take_memory() {
    let (model, formats) = (model(3, 256), formats());
    let machine = Spec::gpu(400_000_000).machine(&model);
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let score = |placement: &Placement, chunk| roofline_times(&machine, &model, &WORKLOAD, placement, chunk);
    let written = |slots: usize, micro_batches: u64| {
        let (gpu, dram) = (hwprofiles::DeviceId(1), hwprofiles::MemoryId(0));
        let mut placement = Placement::uniform(&model, gpu, dram);
        placement.embed[0].home = hwprofiles::MemoryId(1);
        placement.pipelining = planner::Pipelining { slots, micro_batches };
        let problem = problem(cost_model, &WORKLOAD, Objective::Latency);
        let plan = planner::evaluate(&problem, "given", placement.clone(), 96, &score).unwrap();
        let text = plan.to_yaml();
        let (_, again) = Plan::read(&text, "plan.yaml", &machine, &model).unwrap();
        assert_eq!(again, placement);
        let said = explain(&plan, &machine, &model).unwrap().to_string();
        assert_eq!([text.contains("staging_slots"), said.contains("staging slots")], [slots != 2; 2]);
        let divided = [text.contains("micro_batches"), said.contains("micro-batches")];
        assert_eq!(divided, [micro_batches != 1; 2]);
        plan.memory["vram"]
    };
    let one = written(1, 1).staging.get();
    assert!(one > 0);
    assert_eq!([2, 5, 16].map(|slots| written(slots, 1).staging.get()), [2, 5, 16].map(|slots| slots * one));
    assert_eq!(written(2, 2), written(2, 1));
}

#[test]
fn a_rule_that_nothing_beats_is_followed_by_name() {
    let model = model(3, 256);
    let machine = Spec::loopback(4_000_000).machine(&model);
    let all_cpu = Placement::uniform(&model, hwprofiles::DeviceId(0), hwprofiles::MemoryId(0));
    // This score makes the host alone the best, against the cost model.
    let score = |placement: &Placement, chunk| {
        let times = roofline_times(&machine, &model, &WORKLOAD, placement, chunk)?;
        let slower = if *placement == all_cpu { 1.0 } else { 10.0 };
        Ok(PhaseTimes { ttft: times.ttft * slower, tpot: times.tpot.map(|tpot| tpot * slower) })
    };
    let formats = formats();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let plan = plan(&problem(cost_model, &WORKLOAD, Objective::Latency), &score).unwrap();
    assert_eq!(plan.predicted.chosen, "all-cpu");
    assert_eq!(plan.placement(&machine, &model).unwrap(), all_cpu);
    assert_eq!(plan.predicted.simulated, plan.predicted.baselines["all-cpu"]);
}

#[test]
fn what_does_not_fit_is_told_with_the_memory_and_what_would_help() {
    let model = model(4, 256);
    let tell = |spec: Spec, workload: &Workload| planned(spec, &model, workload).unwrap_err().to_string();
    let small = Spec { capacity: [9_000_000, 1_000_000], ..Spec::loopback(0) };
    let many = Workload { batch: 512, ..WORKLOAD };
    insta::assert_snapshot!(
        [
            tell(small, &WORKLOAD),
            tell(Spec { capacity: [40_000_000, 0], ..small }, &many),
            tell(Spec { capacity: [0, 5_000_000], ..small }, &WORKLOAD),
            tell(small, &Workload { batch: 0, ..WORKLOAD }),
        ]
        .join("\n")
    );
}

#[test]
fn a_limit_that_nothing_keeps_is_told_with_the_least_that_was_found() {
    let (model, formats) = (model(4, 256), formats());
    let machine = Spec::gpu(3_000_000).machine(&model);
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    let score = |placement: &Placement, chunk| roofline_times(&machine, &model, &WORKLOAD, placement, chunk);
    let within = |ttft: Option<f64>, tpot: Option<f64>| {
        let slo = Slo { ttft: ttft.map(Seconds::new), tpot: tpot.map(Seconds::new) };
        plan(
            &Problem {
                requirements: Requirements {
                    slo,
                    ..problem(cost_model, &WORKLOAD, Objective::Latency).requirements
                },
                ..problem(cost_model, &WORKLOAD, Objective::Latency)
            },
            &score,
        )
    };
    let free = within(None, None).unwrap().predicted.simulated;
    let (ttft, tpot) = (free.ttft.get(), free.tpot.unwrap().get());
    let kept = within(Some(ttft), Some(tpot)).unwrap().predicted.simulated;
    assert!(kept.ttft <= free.ttft && kept.tpot <= free.tpot);
    let tell = |ttft: Option<f64>, tpot: Option<f64>| match within(ttft, tpot) {
        Err(PlannerError::TooSlow { what, limit, best, .. }) if best > limit => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(tell(Some(ttft * 1e-3), None), "slo.ttft");
    assert_eq!(tell(None, Some(tpot * 1e-3)), "slo.tpot");
    assert_eq!(tell(Some(ttft * 1e-3), Some(tpot * 1e-3)), "slo.ttft");
}

#[test]
fn a_plan_for_something_else_is_refused_with_line_key_and_value() {
    let (model, formats) = (model(4, 256), formats());
    let machine = Spec::loopback(20_000_000).machine(&model);
    let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
    // This test needs divided matrices, and micro-batches would be better here.
    let score = |placement: &Placement, chunk| {
        let times = roofline_times(&machine, &model, &WORKLOAD, placement, chunk)?;
        let slower = if placement.pipelining.micro_batches == 1 { 1.0 } else { 10.0 };
        Ok(PhaseTimes { ttft: times.ttft * slower, ..times })
    };
    let plan = plan(&problem(cost_model, &WORKLOAD, Objective::Latency), &score).unwrap();
    let text = plan.to_yaml();
    let edit = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} is not in\n{text}");
        Plan::read(&text.replacen(from, to, 1), "plan.yaml", &machine, &model).unwrap_err().to_string()
    };
    let other_machine = Spec::loopback(20_000_001).machine(&model);
    let other_model = Model { hidden: 320, ..model.clone() };
    insta::assert_snapshot!(
        [
            edit("plan: 1", "plan: 2"),
            edit("embed:", "embedding:"),
            edit("home: dram", "home: hbm"),
            edit("prefill: cpu", "prefill: gpu"),
            edit("share: 0.5", "share: 0.6"),
            edit("share: 0.5, ", ""),
            edit("first: 0", "first: 1"),
            edit("count: 4", "count: 3"),
            edit("count: 4", "count: 5"),
            edit("batch: 2", "batch: 2000000"),
            edit("batch: 2", "batch: 900"),
            edit("prefill_chunk: 96", "prefill_chunk: 0"),
            edit("prefill_chunk: 96", "prefill_chunk: 96\nstaging_slots: 0"),
            edit("prefill_chunk: 96", "prefill_chunk: 96\nstaging_slots: 17"),
            edit("prefill_chunk: 96", "prefill_chunk: 96\nmicro_batches: 0"),
            edit("prefill_chunk: 96", "prefill_chunk: 96\nmicro_batches: 3"),
            Plan::read(&text, "plan.yaml", &other_machine, &model).unwrap_err().to_string(),
            Plan::read(&text, "plan.yaml", &machine, &other_model).unwrap_err().to_string(),
        ]
        .join("\n")
    );
}

#[test]
fn an_explanation_keeps_to_80_columns() {
    let model = model(4, 256);
    for spec in [Spec::loopback(9_000_000), Spec::gpu(7_460_000)] {
        let (machine, plan) = planned(spec, &model, &WORKLOAD).unwrap();
        let text = explain(&plan, &machine, &model).unwrap().to_string();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        let brief = explain(&plan, &machine, &model).unwrap().brief().to_string();
        assert!(brief.lines().count() <= 25, "{brief}");
        assert!(brief.lines().all(|line| line.chars().count() <= 80), "{brief}");
        for word in ["TTFT", "tok/s", "prefill: at least", "memory: "] {
            assert!(brief.contains(word), "{word}: {brief}");
        }
        insta::assert_snapshot!(if spec.loopback { "loopback" } else { "gpu" }, text);
    }
}

fn specs() -> impl Strategy<Value = Spec> {
    let rate = |low: f64, high: f64| (low.ln()..high.ln()).prop_map(f64::exp);
    let sizes = (0u64..60_000_000, 0u64..40_000_000);
    (rate(1e10, 1e13), rate(1e9, 1e12), sizes, rate(1e9, 1e11), rate(1e-7, 1e-4), any::<bool>()).prop_map(
        |(flop, read, (dram, vram), link, delay, loopback)| Spec {
            flop: [1e11, flop],
            read: [2e10, read],
            bandwidth: [3e10, read],
            capacity: [dram, vram],
            link,
            latency: delay,
            launch: [delay, delay],
            sync: delay,
            loopback,
            cxl: None,
            stripes: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(crate::cases::cases(32)) })]
    #[test]
    fn no_plan_exceeds_a_capacity_or_loses_to_a_rule(
        spec in specs(), layers in 1u64..7, batch in 1u64..9, objective in 0usize..3, output in 1u64..40,
    ) {
        let model = model(layers, 256);
        let machine = spec.machine(&model);
        let workload = Workload { batch, output_tokens: output, ..WORKLOAD };
        let objective = Objective::ALL[objective];
        let formats = formats();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let score =
            |placement: &Placement, chunk| roofline_times(&machine, &model, &workload, placement, chunk);
        match plan(&problem(cost_model, &workload, objective), &score) {
            Ok(plan) => {
                let placement = plan.placement(&machine, &model).unwrap();
                let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
                let chunk = plan.prefill_chunk;
                let extent = RunExtent { batch, context: workload.context(), chunk, step_tokens: 1 };
                let used = usage(&machine, &model, &formats, &placement, &programs, &extent);
                for (memory, used) in machine.memories.iter().zip(&used) {
                    prop_assert!(used.total() <= memory.capacity.value);
                    prop_assert_eq!(&plan.memory[&memory.name], used);
                }
                if objective == Objective::Latency {
                    let value = |t: &PhaseTimes| {
                        t.ttft.get() + t.tpot.map_or(0.0, |tpot| tpot.get() * (output - 1) as f64)
                    };
                    for times in plan.predicted.baselines.values() {
                        prop_assert!(value(&plan.predicted.simulated) <= value(times));
                    }
                }
            }
            Err(PlannerError::Infeasible { needed, capacity, .. }) => prop_assert!(needed > capacity),
            Err(PlannerError::NoPlacement { .. }) => {
                prop_assert!(spec.capacity.iter().sum::<u64>() < Bytes::new(60_000_000).get());
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn a_damaged_plan_is_read_or_refused_without_panic(
        cut in any::<prop::sample::Index>(), length in 0usize..12, put in "[ -~\n]{0,8}|nan|-1|1e309|\\{\\}|\\[\\]",
    ) {
        let model = model(2, 256);
        let (machine, plan) = planned(Spec::loopback(9_000_000), &model, &WORKLOAD).unwrap();
        let text = plan.to_yaml();
        let start = cut.index(text.len());
        let end = (start + length).min(text.len());
        prop_assume!(text.is_char_boundary(start) && text.is_char_boundary(end));
        let damaged = format!("{}{put}{}", &text[..start], &text[end..]);
        if let Err(error) = Plan::read(&damaged, "plan.yaml", &machine, &model) {
            prop_assert!(error.to_string().starts_with("plan.yaml:"));
        }
    }
}

/// The search tells buffers apart that only some placements need, before it reports that nothing
/// fits.
#[test]
fn what_fits_only_just_is_found() {
    let rates = ([1e11, 2.7e12], [2e10, 1.3e11], [3e10, 1.3e11]);
    let (flop, read, bandwidth) = rates;
    let (delay, gpu) = (1e-4, Spec::gpu(0));
    let (model, formats) = (model(2, 256), formats());
    let workload = Workload { batch: 7, output_tokens: 11, ..WORKLOAD };
    for dram in [20_000_000, 20_500_000, 21_000_000] {
        let (capacity, launch) = ([dram, 7_900_000], [delay; 2]);
        let spec =
            Spec { flop, read, bandwidth, capacity, link: 1e9, latency: delay, launch, sync: delay, ..gpu };
        let machine = spec.machine(&model);
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let score =
            |placement: &Placement, chunk| roofline_times(&machine, &model, &workload, placement, chunk);
        let found = plan(&problem(cost_model, &workload, Objective::Latency), &score);
        assert!(found.is_ok(), "{dram}: {found:?}");
    }
}

#[test]
fn a_model_whose_layers_all_differ_is_planned() {
    let widths: Vec<u64> = (0..40).map(|layer| 256 + 64 * layer).collect();
    let config = serde_json::json!({
        "model_type": "gemma3n_text", "vocab_size": 512, "vocab_size_per_layer_input": 512, "hidden_size": 256,
        "hidden_size_per_layer_input": 32, "intermediate_size": widths, "num_hidden_layers": widths.len(),
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "laurel_rank": 16,
        "altup_num_inputs": 2, "num_kv_shared_layers": 0, "sliding_window": 64, "max_position_embeddings": 1024,
        "layer_types": vec!["full_attention"; widths.len()],
    });
    let model = Model::from_config_json("varied", "config.json", &config.to_string()).unwrap();
    assert_eq!(model.kinds().count(), widths.len());
    // A card with room for half of the model, so that sizes of staging slots and of scratch matter.
    let half = model.weight_bytes(&formats()).get() / 2;
    for spec in [Spec::gpu(half), Spec::loopback(half)] {
        let (machine, plan) = planned(spec, &model, &WORKLOAD).unwrap();
        for memory in &machine.memories {
            assert!(plan.memory[&memory.name].total() <= memory.capacity.value, "{}", memory.name);
        }
    }
}
