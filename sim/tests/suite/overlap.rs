//! The gain from more overlap in the planner. The test prints its rows: `cargo test -p fulcrum-sim
//! --test suite overlap -- --nocapture`.

use hwprofiles::{DType, EngineExecution, Library, Machine, Ratio, Sourced, yaml};
use planner::{CostModel, PLANNED, PhasePrograms, PhaseTimes, Placement, Plan, Problem, plan, steps};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};
use sim::BatchRun;

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// The plan for 64 output tokens among the admitted placements, its seconds, and the seconds of its
/// placement with two staging slots.
fn planned(
    machine: &str,
    model: &str,
    [batch, prompt_tokens]: [u64; 2],
    admits: impl Fn(&Placement) -> bool + Sync,
) -> (Plan, [f64; 2]) {
    let machine = Library::default().machine(machine).unwrap();
    let model = Model::preset(model).unwrap();
    let workload = Workload { batch, prompt_tokens, output_tokens: 64, speculation: None };
    let cost_model = CostModel { machine: &machine, model: &model, formats: &BF16 };
    let (objective, slo, costs) = (Objective::Throughput, Slo::default(), Costs::default());
    let question =
        Problem { cost_model, draft: None, requirements: Requirements { workload, objective, slo, costs } };
    let score = |placement: &Placement, chunk| {
        let times = sim::estimate(cost_model, placement, &workload, chunk)?;
        let slower = if admits(placement) { 1.0 } else { 1000.0 };
        Ok(PhaseTimes { ttft: times.ttft * slower, ..times })
    };
    let plan = plan(&question, &score).unwrap();
    let placement = plan.placement(&machine, &model).unwrap();
    let mut changed = placement.clone();
    changed.pipelining.slots = 2;
    let seconds = [placement, changed].map(|placement| {
        let times = score(&placement, plan.prefill_chunk).unwrap();
        times.ttft.get() + 63.0 * times.tpot.unwrap().get()
    });
    (plan, seconds)
}

#[test]
fn more_staging_slots_are_chosen_where_a_link_would_wait_for_room_and_only_there() {
    let cases = [
        ("spr-a100", "llama-3.1-70b", [1, 8192], false),
        ("spr-a100", "llama-3.1-70b", [12, 1024], true),
        ("spr-a100", "opt-30b", [1, 512], false),
        ("spr-h100", "llama-3.1-70b", [1, 512], false),
    ];
    for (machine, model, size, deeper) in cases {
        let (plan, [chosen, two]) = planned(machine, model, size, |_| true);
        println!(
            "{model} on {machine}, {size:?}: {} slots {chosen:.1} s, 2 slots {two:.1} s",
            plan.staging_slots
        );
        assert_eq!(plan.staging_slots > 2, deeper);
        if deeper {
            assert!(chosen < 0.99 * two && plan.predicted.chosen == PLANNED);
        }
    }
}

#[test]
fn micro_batches_are_chosen_where_two_devices_are_then_busy_at_once_and_weights_are_cheap_to_read_again() {
    let cases = [
        ("spr-h100", "opt-30b", [64, 512], true),
        ("spr-h100", "opt-30b", [64, 1984], true),
        ("spr-h100", "opt-30b", [256, 512], true),
        ("spr-a100", "opt-30b", [8, 512], false),
        ("spr-a100", "llama-3.1-70b", [64, 512], false),
    ];
    for (machine, model, size, divided) in cases {
        let (plan, [seconds, _]) = planned(machine, model, size, |_| true);
        let (whole, [undivided, _]) =
            planned(machine, model, size, |placement| placement.pipelining.micro_batches == 1);
        println!(
            "{model} on {machine}, {size:?}: {} micro-batches {seconds:.1} s, in one piece {undivided:.1} s",
            plan.micro_batches
        );
        assert_eq!((plan.micro_batches > 1, whole.micro_batches), (divided, 1));
        assert!(if divided { seconds < 0.99 * undivided } else { plan == whole });
    }
}

/// Two RTX 3060, and layers of which the first half is with the first one.
fn divided(share: Option<f64>) -> (Machine, Model, Placement) {
    let text = "parts: {cpu: xeon-gold-6138, dram: {capacity: {value: 64 GB, source: {estimated: {reason: test}}}}, \
                gpu: {part: rtx-3060-12, count: 2}, link: pcie4-x16}";
    let machine = Library::default().compose(&yaml::read(text, "inline").unwrap()).unwrap();
    let execution = EngineExecution {
        step_overlap: share.map(|share| Sourced::estimated(Ratio::new(share).unwrap(), "test")),
        ..EngineExecution::default()
    };
    let model = Model::preset("qwen3-1.7b").unwrap();
    let gpus: Vec<_> = machine.identical_gpus();
    let [first, second] =
        [0, 1].map(|at| Placement::uniform(&model, gpus[at], machine.device(gpus[at]).memory));
    let half = model.layers as usize / 2;
    let layers = [&first.layers[..half], &second.layers[half..]].concat();
    (machine.run_by(&execution), model, Placement { layers, ..second })
}

fn ttft(share: Option<f64>, prompt_tokens: u64, chunk: u64) -> [f64; 2] {
    let (machine, model, placement) = divided(share);
    let workload = Workload { batch: 1, prompt_tokens, output_tokens: 2, speculation: None };
    let cost_model = CostModel { machine: &machine, model: &model, formats: &BF16 };
    let estimate = sim::estimate(cost_model, &placement, &workload, chunk).unwrap();
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    let steps = steps(&workload, chunk);
    let run = BatchRun::new(cost_model, &programs, &steps).times().unwrap();
    assert_eq!(run.tpot.is_some(), estimate.tpot.is_some());
    [estimate.ttft.get(), run.ttft.get()]
}

#[test]
fn steps_of_a_prompt_follow_each_other_through_gpus_as_far_as_an_engine_does_so() {
    for (prompt, chunk) in [(512, 512), (2048, 512), (8192, 512), (5000, 512)] {
        let [waiting, half, whole] = [None, Some(0.5), Some(1.0)].map(|share| ttft(share, prompt, chunk));
        for [estimate, run] in [waiting, half, whole] {
            assert!((estimate / run - 1.0).abs() < 5e-3, "{prompt}: {estimate} and {run}");
        }
        let steps = prompt.div_ceil(chunk) as f64;
        let middle = f64::midpoint(waiting[1], whole[1]);
        assert!((half[1] / middle - 1.0).abs() < 1e-6, "{prompt}: half of the gain");
        // Equal halves: all steps but the last take half of their time. Later steps take longer.
        let ideal = (steps + 1.0) / (2.0 * steps);
        let ratio = whole[1] / waiting[1];
        assert!(ratio >= ideal * 0.98 && ratio <= ideal * 1.08, "{prompt}: {ratio}, ideally {ideal}");
    }
}
