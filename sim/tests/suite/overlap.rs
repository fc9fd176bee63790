//! The gain from more overlap in the planner. The test prints its rows: `cargo test -p fulcrum-sim
//! --test suite overlap -- --nocapture`.

use hwprofiles::{DType, Library};
use planner::{CostModel, PLANNED, PhaseTimes, Placement, Plan, Problem, plan};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};

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
        ("spr-a100", "llama-3.1-70b", [8, 1024], true),
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
