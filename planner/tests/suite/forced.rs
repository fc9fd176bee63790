//! Placements that a scenario forces: what llama.cpp makes of its options.

use crate::fixture::{Spec, formats, model};
use crate::mixture::{described, mixture};
use hwprofiles::{DeviceId, Machine, MemoryId, Seconds};
use planner::{
    CostModel, Effort, ExportTarget, FORCED, ForcedPlacement, PhaseTimes, Placement, Plan, PlannerError,
    Problem, Program, Rule, Scorer, evaluate, export, plan_among,
};
use proptest::prelude::*;
use scenarios::{
    Costs, CpuMoe, Model, Objective, OffloadOptions, Phase, Requirements, Slo, Sublayer, TensorOverride,
    Workload,
};

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };
const HOST: DeviceId = DeviceId(0);
const GPU: DeviceId = DeviceId(1);
const HBM: MemoryId = MemoryId(1);

fn options() -> OffloadOptions {
    OffloadOptions { op_offload: Some(u64::MAX), ..OffloadOptions::DEFAULT }
}

fn overrides(texts: &[&str]) -> Vec<TensorOverride> {
    let part = |text: &&str| {
        let (pattern, buffer) = text.split_once('=').expect("an override");
        TensorOverride { pattern: pattern.to_owned(), buffer: buffer.to_owned() }
    };
    texts.iter().map(part).collect()
}

fn requirements() -> Requirements {
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    Requirements { workload: WORKLOAD, objective, slo, costs }
}

fn follow(machine: &Machine, model: &Model, forced: &ForcedPlacement) -> Result<Plan, PlannerError> {
    let cost_model = CostModel { machine, model, formats: &formats() };
    let problem = Problem { cost_model, draft: None, requirements: requirements() };
    fn score(_: CostModel<'_>, _: Workload) -> Box<Scorer<'_>> {
        Box::new(|_, _| Ok(PhaseTimes { ttft: Seconds::ZERO, tpot: None }))
    }
    let machines = std::slice::from_ref(machine);
    Ok(plan_among(&problem, machines, None, &[formats()], None, Some(forced), Effort::SOLVE, &score)?.plan)
}

fn placed(machine: &Machine, model: &Model, options: OffloadOptions) -> Placement {
    let plan = follow(machine, model, &ForcedPlacement::Offload(options)).expect("a plan");
    assert_eq!(plan.predicted.chosen, FORCED);
    plan.placement(machine, model).expect("a placement")
}

#[test]
fn a_gpu_in_the_hosts_memory_reads_the_token_table_itself() {
    let model = model(4, 256);
    let mut machine = Spec::gpu(80_000_000).machine(&model);
    machine.devices[GPU.0].memory = machine.devices[HOST.0].memory;
    let placement = placed(&machine, &model, OffloadOptions { gpu_layers: Some(5), ..options() });
    assert!(placement.embed.iter().all(|slice| slice.decode == GPU && slice.prefill == GPU));
    for phase in [Phase::Prefill, Phase::Decode] {
        Program::lower(&machine, &model, &placement, phase).expect("nothing moves");
    }
}

#[test]
fn the_last_layers_are_on_the_gpu_and_one_more_takes_the_head() {
    let model = model(4, 256);
    let machine = Spec::gpu(80_000_000).machine(&model);
    for layers in 0..=6 {
        let placement = placed(&machine, &model, OffloadOptions { gpu_layers: Some(layers), ..options() });
        for (index, layer) in placement.layers.iter().enumerate() {
            let there = index as u64 + layers >= 4;
            let device = if there { GPU } else { HOST };
            assert!(layer.sublayers.iter().flatten().all(|s| s.decode == device && s.prefill == device));
            assert_eq!(layer.kv_home() == Some(HBM), there);
        }
        assert_eq!(placement.head[0].home == HBM, layers > 4);
        assert_ne!(placement.embed[0].home, HBM);
    }
}

#[test]
fn first_layers_keep_their_experts_with_the_host() {
    let model = mixture(6);
    let machine = Spec::gpu(80_000_000).machine(&model);
    for layers in 0..=6 {
        let placement =
            placed(&machine, &model, OffloadOptions { cpu_moe: CpuMoe::First(layers), ..options() });
        for (index, layer) in placement.layers.iter().enumerate().skip(1) {
            let experts = &layer.slices(Sublayer::Experts)[0];
            assert_eq!(experts.home == HBM, index as u64 >= layers, "layer {index} of {layers}");
            assert_eq!(layer.slices(Sublayer::SharedExpert)[0].home, HBM);
        }
    }
    let all = placed(&machine, &model, OffloadOptions { cpu_moe: CpuMoe::All, ..options() });
    // As llama.cpp takes it, more layers than there are means all of them.
    let last = placed(&machine, &model, OffloadOptions { cpu_moe: CpuMoe::First(99), ..options() });
    assert_eq!(all, last);
}

#[test]
fn the_first_pattern_wins_and_a_matrix_is_divided_by_its_tensors() {
    let model = mixture(6);
    let machine = Spec::gpu(80_000_000).machine(&model);
    let by = |texts: &[&str]| {
        placed(&machine, &model, OffloadOptions { override_tensor: overrides(texts), ..options() })
    };
    let placement = by(&[r"blk\.(1|2)\.ffn.*=CUDA0", "exps=CPU"]);
    for (index, layer) in placement.layers.iter().enumerate().skip(1) {
        assert_eq!(layer.slices(Sublayer::Experts)[0].home == HBM, index <= 2);
        assert_eq!(layer.slices(Sublayer::Router)[0].home, HBM);
    }
    assert_eq!(
        by(&[r"blk\.(1|2)\.ffn.*=CUDA0,exps=CPU".replace(",exps=CPU", "").as_str(), "exps=CPU"]),
        placement
    );
    let placement = by(&["gate_exps=CPU", "up_exps=CPU"]);
    let slices = placement.layers[3].slices(Sublayer::Experts);
    let on_host: u64 = slices.iter().filter(|s| s.home != HBM).map(|s| s.rows.end - s.rows.start).sum();
    assert_eq!((slices.len(), on_host), (2, 5), "two thirds of 8 experts");
    assert_eq!(by(&["up_exps=CPU", "gate_exps=CPU", "down_exps=CPU"]), by(&["exps=CPU"]));
}

#[test]
fn large_products_fetch_the_hosts_weights_and_small_ones_do_not() {
    let model = mixture(6);
    let machine = Spec::gpu(80_000_000).machine(&model);
    for (rows, micro_batch, fetches) in
        [(32, 512, true), (32, 16, false), (192, 512, true), (193, 512, false)]
    {
        let options =
            OffloadOptions { cpu_moe: CpuMoe::All, op_offload: Some(rows), micro_batch, ..options() };
        let plan = follow(&machine, &model, &ForcedPlacement::Offload(options)).expect("a plan");
        assert_eq!(plan.prefill_chunk, (micro_batch / 2).min(96));
        let placement = plan.placement(&machine, &model).expect("a placement");
        let experts = &placement.layers[2].slices(Sublayer::Experts)[0];
        assert_eq!((experts.prefill == GPU, experts.decode), (fetches, HOST), "{rows} {micro_batch}");
    }
}

/// llama.cpp's options that `export` wrote, without the keys of the command that place nothing.
fn read_command(command: &str, layers: u64) -> Option<OffloadOptions> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
    let counted: u64 = after("-ngl")?.parse().expect("a number");
    let mut texts: Vec<String> = Vec::new();
    texts.extend(
        after("-ot").map(|text| text.trim_matches('\'').split(',').map(str::to_owned)).into_iter().flatten(),
    );
    // Since December 2025 the output projection is the first layer that is counted.
    let last = after("-ts").map_or(0, |text| {
        let parts: Vec<_> = text.split(',').collect();
        parts.iter().rposition(|part| *part != "0").expect("a part for some GPU")
    });
    let head = format!(r"^(output|token_embd)\.weight=CUDA{last}");
    texts.extend((1..=layers).contains(&counted).then_some(head));
    let first = after("--n-cpu-moe").map(|text| text.parse().expect("a number"));
    Some(OffloadOptions {
        gpu_layers: Some(if counted > layers { counted } else { counted.saturating_sub(1) }),
        cpu_moe: first.map_or(CpuMoe::None, CpuMoe::First),
        override_tensor: overrides(&texts.iter().map(String::as_str).collect::<Vec<_>>()),
        op_offload: Some(if words.contains(&"--no-op-offload") { u64::MAX } else { OffloadOptions::ROWS }),
        tensor_split: after("-ts")
            .map_or(vec![], |text| text.split(',').map(|part| part.parse().expect("a number")).collect()),
        kv_on_host: words.contains(&"-nkvo"),
        micro_batch: after("-ub")?.parse().expect("a number"),
        ..OffloadOptions::DEFAULT
    })
}

#[test]
fn what_is_exported_is_read_back_to_the_nearest_placement() {
    for (model, dense) in [(model(4, 256), true), (mixture(6), false)] {
        let machine = Spec::gpu(80_000_000).machine(&model);
        let there = Placement::uniform(&model, GPU, HBM);
        let here = Placement::uniform(&model, HOST, MemoryId(0));
        let mut read = 0;
        for moved in 0..=model.layers as usize {
            for (head, last) in [(true, false), (false, true), (true, true)] {
                let mut placement = there.clone();
                placement.embed.clone_from(&here.embed);
                placement.layers[..moved].clone_from_slice(&here.layers[..moved]);
                if !head {
                    placement.head.clone_from(&here.head);
                }
                if last {
                    let at = placement.layers[3].sublayers.len() - 1;
                    placement.layers[3].sublayers[at].clone_from(&here.layers[3].sublayers[at]);
                }
                let cost_model = CostModel { machine: &machine, model: &model, formats: &formats() };
                let problem = Problem { cost_model, draft: None, requirements: requirements() };
                let none = PhaseTimes { ttft: Seconds::ZERO, tpot: None };
                let plan = evaluate(&problem, "given", placement, 96, &|_, _| Ok(none)).expect("a plan");
                let export = export(&plan, &machine, &model, ExportTarget::LlamaCpp).expect("an export");
                let Some(options) = read_command(&export.command, model.layers) else { continue };
                let found = placed(&machine, &model, options);
                let same = (&found.embed, &found.layers, &found.head)
                    == (&export.nearest.embed, &export.nearest.layers, &export.nearest.head);
                assert!(same, "{}", export.command);
                read += 1;
            }
        }
        assert!(read >= if dense { 12 } else { 18 }, "{read}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(48)))]

    #[test]
    fn the_options_of_several_gpus_are_exported_and_read_back(
        gpu_layers in 1u64..=7,
        first in 0u64..=6,
        split in prop::collection::vec(1u64..=6, 2..=2),
        kv_on_host in any::<bool>(),
        fetches in any::<bool>(),
    ) {
        let model = mixture(6);
        let machine = described("2x RTX 3090, EPYC 7532, 256 GB");
        let given = OffloadOptions {
            gpu_layers: Some(gpu_layers),
            cpu_moe: CpuMoe::First(first),
            tensor_split: split,
            kv_on_host,
            op_offload: Some(if fetches { OffloadOptions::ROWS } else { u64::MAX }),
            ..OffloadOptions::DEFAULT
        };
        let plan = follow(&machine, &model, &ForcedPlacement::Offload(given)).expect("a plan");
        let placement = plan.placement(&machine, &model).expect("a placement");
        let export = export(&plan, &machine, &model, ExportTarget::LlamaCpp).expect("an export");
        prop_assert_eq!(&export.nearest.layers, &placement.layers, "{}", export.command);
        prop_assert_eq!(&export.nearest.head, &placement.head, "{}", export.command);
        let read = read_command(&export.command, model.layers).expect("options");
        let found = placed(&machine, &model, read);
        prop_assert_eq!(&found.layers, &placement.layers, "{}", export.command);
        prop_assert_eq!(&found.head, &placement.head, "{}", export.command);
    }
}

#[test]
fn a_placement_that_does_not_fit_says_what_is_short() {
    let model = model(4, 256);
    let machine = Spec::gpu(1_000_000).machine(&model);
    let forced = ForcedPlacement::Offload(OffloadOptions { gpu_layers: Some(9), ..options() });
    let error = follow(&machine, &model, &forced).expect_err("too large");
    let PlannerError::ForcedTooLarge { memory, needed, capacity, short, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((memory.as_str(), *short), (machine.memory(HBM).name.as_str(), *needed - *capacity));
    assert!(error.is_infeasible() && error.to_string().contains("short"), "{error}");
}

#[test]
fn wrong_options_say_what_would_be_right() {
    let model = mixture(6);
    let machine = Spec::gpu(80_000_000).machine(&model);
    let refusal = |options| {
        let refusal = ForcedPlacement::Offload(options).check(&machine, &model).expect_err("wrong");
        refusal.to_string()
    };
    let by = |text: &str| refusal(OffloadOptions { override_tensor: overrides(&[text]), ..options() });
    assert!(by("ffn_dwn=CPU").contains("blk.5.ffn_down_exps.weight"), "{}", by("ffn_dwn=CPU"));
    assert!(by("exps=CUDA1").contains("CPU, CUDA0"), "{}", by("exps=CUDA1"));
    let split = refusal(OffloadOptions { tensor_split: vec![1, 1], ..options() });
    assert!(split.contains("has 1 GPUs: a number for each"), "{split}");
    assert!(by("exps(=CPU").contains("regular expression"), "{}", by("exps(=CPU"));
}

#[test]
fn rules_and_plans_are_followed() {
    let model = mixture(6);
    let machine = Spec::gpu(80_000_000).machine(&model);
    let rule = follow(&machine, &model, &ForcedPlacement::Rule(Rule::AllCpu)).expect("a plan");
    assert_eq!(rule.predicted.chosen, format!("{FORCED} (all-cpu)"));
    let again = follow(&machine, &model, &ForcedPlacement::Plan(Box::new(rule.clone()))).expect("a plan");
    assert_eq!(
        again.placement(&machine, &model).expect("a placement"),
        rule.placement(&machine, &model).expect("a placement")
    );
    assert_eq!(again.prefill_chunk, rule.prefill_chunk);
}
