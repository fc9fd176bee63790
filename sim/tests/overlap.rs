//! What the planner gains by overlapping more. The test prints its rows: `cargo test -p sim --test overlap -- --nocapture`.

use hwprofiles::{DType, Library};
use planner::{PLANNED, Placement, Plan, Pricing, Question, plan};
use scenarios::{Costs, Formats, Model, Objective, Slo, Workload};

const BF16: Formats = Formats { weights: DType::Bf16, kv: DType::Bf16, activations: DType::Bf16 };

/// The plan for 64 output tokens, and the seconds that its placement takes when changed by `change`.
fn planned(
    machine: &str,
    model: &str,
    [batch, prompt_tokens]: [u64; 2],
    change: impl Fn(&mut Placement),
) -> (Plan, [f64; 2]) {
    let machine = Library::default().machine(machine).unwrap();
    let model = Model::preset(model).unwrap();
    let workload = Workload { batch, prompt_tokens, output_tokens: 64 };
    let pricing = Pricing { machine: &machine, model: &model, formats: &BF16 };
    let (objective, slo, costs) = (Objective::Throughput, Slo::default(), Costs::default());
    let question = Question { pricing, workload, objective, slo, costs };
    let score = |placement: &Placement, chunk| sim::estimate(pricing, placement, &workload, chunk);
    let plan = plan(&question, &score).unwrap();
    let placement = plan.placement(&machine, &model).unwrap();
    let mut changed = placement.clone();
    change(&mut changed);
    let seconds = [placement, changed].map(|placement| {
        let times = score(&placement, plan.prefill_chunk).unwrap();
        times.ttft.get() + 63.0 * times.tpot.unwrap().get()
    });
    (plan, seconds)
}

#[test]
fn more_staging_slots_are_chosen_where_a_link_would_wait_for_room_and_only_there() {
    let cases = [
        ("spr-a100", "llama-3.1-70b", [1, 4096], true),
        ("spr-h100", "llama-3.1-70b", [64, 4096], true),
        ("spr-a100", "opt-30b", [1, 512], false),
        ("spr-h100", "llama-3.1-70b", [1, 512], false),
    ];
    for (machine, model, size, deeper) in cases {
        let (plan, [chosen, two]) = planned(machine, model, size, |placement| placement.pipelining.slots = 2);
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
