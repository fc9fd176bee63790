//! Plans within what an engine can express: they are their own exports.

use crate::fixture::{Spec, formats, model};
use crate::mixture::{described, mixture};
use hwprofiles::{Bytes, Machine, MemoryId};
use planner::{
    CostModel, ExportTarget, LayerPlacement, Placement, Plan, Problem, evaluate, export, plan_offload,
};
use scenarios::{
    Costs, CpuMoe, Formats, Model, Objective, OffloadOptions, Requirements, Slo, Sublayer, Workload,
};

const WORKLOAD: Workload = Workload { batch: 2, prompt_tokens: 96, output_tokens: 32, speculation: None };

fn problem<'a>(machine: &'a Machine, model: &'a Model, formats: &'a Formats) -> Problem<'a> {
    let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
    let requirements = Requirements { workload: WORKLOAD, objective, slo, costs };
    Problem { cost_model: CostModel { machine, model, formats }, draft: None, requirements }
}

#[test]
fn the_best_options_of_an_engine_are_exported_as_they_are() {
    let experts = mixture(6);
    let engine = OffloadOptions { op_offload: Some(OffloadOptions::ROWS), ..OffloadOptions::DEFAULT };
    for capacity in [3_000_000, 6_000_000, 12_000_000, 80_000_000] {
        let machine = Spec::gpu(capacity).machine(&experts);
        let formats = formats();
        let problem = problem(&machine, &experts, &formats);
        let (plan, options) = plan_offload(&problem, &machine, &engine, &crate::scorer::roofline).unwrap();
        let export = export(&plan, &machine, &experts, ExportTarget::LlamaCpp).unwrap();
        let placement = plan.placement(&machine, &experts).unwrap();
        assert_eq!(export.nearest.layers, placement.layers, "{options:?}: {}", export.command);
        assert_eq!(export.nearest.head, placement.head, "{options:?}: {}", export.command);
    }
}

#[test]
fn experts_fill_both_gpus_and_a_second_one_is_never_slower() {
    let experts = mixture(12);
    let engine = OffloadOptions { op_offload: Some(OffloadOptions::ROWS), ..OffloadOptions::DEFAULT };
    let mut spread = 0;
    for capacity in [7, 12, 14, 16, 18, 22] {
        let machine = |words: &str| {
            let mut machine = described(words);
            for memory in &mut machine.memories[1..] {
                memory.capacity.value = Bytes::new(capacity * 1_000_000);
            }
            machine
        };
        let planned = |machine: &Machine| {
            let formats = formats();
            plan_offload(&problem(machine, &experts, &formats), machine, &engine, &crate::scorer::roofline)
                .unwrap()
        };
        let (one, two) = (machine("RTX 3090, EPYC 7532, 256 GB"), machine("2x RTX 3090, EPYC 7532, 256 GB"));
        let [(alone, _), (both, options)] = [&one, &two].map(planned);
        let time =
            |plan: &Plan| plan.predicted.simulated.ttft + plan.predicted.simulated.tpot.unwrap() * 31.0;
        assert!(time(&both) <= time(&alone) * 1.001, "{capacity}: {} {}", time(&both), time(&alone));
        let brief = planner::explain(&both, &two, &experts).unwrap().brief().to_string();
        assert!(brief.contains("The best of what the engine can express."), "{brief}");
        let export = export(&both, &two, &experts, ExportTarget::LlamaCpp).unwrap();
        let placement = both.placement(&two, &experts).unwrap();
        assert_eq!((&export.nearest.layers, &export.nearest.head), (&placement.layers, &placement.head));
        let holding = (1..=2).filter(|&gpu| {
            // The first layer has no experts.
            let experts = |layer: &LayerPlacement| layer.slices(Sublayer::Experts)[0].home;
            placement.layers[1..].iter().any(|layer| experts(layer) == MemoryId(gpu))
        });
        spread += usize::from(holding.count() == 2 && options.cpu_moe != CpuMoe::None);
    }
    assert!(spread > 0, "no capacity divides experts between both GPUs and the host");
}

#[test]
fn a_plan_for_an_engine_is_its_own_export_and_no_worse_than_the_export_of_the_free_plan() {
    let (dense, experts) = (model(5, 256), mixture(5));
    let (few, mut planned) = (planner::Effort::new(4), 0);
    for (model, capacity) in [(&dense, 9_000_000), (&dense, 30_000_000), (&experts, 6_000_000)] {
        let machine = Spec::gpu(capacity).machine(model);
        let formats = formats();
        let problem = problem(&machine, model, &formats);
        let score = |placement: &Placement, chunk| {
            crate::scorer::roofline_times(&machine, model, &WORKLOAD, placement, chunk)
        };
        let latency = |plan: &Plan| {
            let times = plan.predicted.simulated;
            times.ttft.get() + times.tpot.unwrap().get() * (WORKLOAD.output_tokens - 1) as f64
        };
        let free = planner::plan_improved(&problem, few, &score).unwrap();
        for engine in ExportTarget::ALL {
            let Ok(plan) = planner::plan_for_engine(&problem, engine, few, &score) else { continue };
            planned += 1;
            let options = export(&plan, &machine, model, engine).unwrap();
            assert_eq!(plan.placement(&machine, model).unwrap(), options.nearest, "{engine}");
            if let Ok(rounded) = export(&free, &machine, model, engine) {
                let rounded = evaluate(&problem, "rounded", rounded.nearest, free.prefill_chunk, &score);
                assert!(latency(&plan) <= latency(&rounded.unwrap()), "{engine}");
            }
        }
    }
    assert!(planned > 5, "{planned}");
}

#[test]
fn limits_that_no_options_keep_are_refused_with_the_least_time() {
    let experts = mixture(6);
    let machine = Spec::gpu(6_000_000).machine(&experts);
    let formats = formats();
    let free = problem(&machine, &experts, &formats);
    let planned = |slo: Slo| {
        let problem = Problem { requirements: Requirements { slo, ..free.requirements }, ..free };
        plan_offload(&problem, &machine, &OffloadOptions::DEFAULT, &crate::scorer::roofline)
    };
    let (plan, _) = planned(Slo::default()).unwrap();
    let times = plan.predicted.simulated;
    let tpot = times.tpot.unwrap();
    for (slo, key) in [
        (Slo { ttft: Some(times.ttft * 0.1), tpot: None }, "slo.ttft"),
        (Slo { ttft: None, tpot: Some(tpot * 0.1) }, "slo.tpot"),
        (Slo { ttft: Some(times.ttft * 2.0), tpot: Some(tpot * 0.1) }, "slo.tpot"),
    ] {
        let told = planned(slo).unwrap_err().to_string();
        assert!(told.starts_with(key) && told.contains("with the engine's options"), "{told}");
    }
    let kept = planned(Slo { ttft: Some(times.ttft * 1.01), tpot: Some(tpot * 1.01) }).unwrap().0;
    assert!(kept.predicted.simulated.ttft <= times.ttft * 1.01);
}
