//! Plans for the least energy, on a shipped machine.

use hwprofiles::{DType, Library, Machine};
use planner::{CostModel, Plan, Problem, Rule, follow, plan};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// Applies `answer` to the planning problem of OPT-30B with 512 + 64 tokens.
fn answered<T>(
    machine: &Machine,
    batch: u64,
    objective: Objective,
    answer: impl Fn(&Problem<'_>, &planner::Scorer<'_>) -> T,
) -> T {
    let model = Model::preset("opt-30b").unwrap();
    let workload = Workload { batch, prompt_tokens: 512, output_tokens: 64, speculation: None };
    let cost_model = CostModel { machine, model: &model, formats: &FORMATS };
    let (slo, costs) = (Slo::default(), Costs::default());
    let question =
        Problem { cost_model, draft: None, requirements: Requirements { workload, objective, slo, costs } };
    answer(&question, &|placement, chunk| sim::estimate(cost_model, placement, &workload, chunk))
}

fn planned(machine: &Machine, batch: u64, objective: Objective) -> Plan {
    answered(machine, batch, objective, |question, scorer| plan(question, scorer).unwrap())
}

fn seconds(plan: &Plan) -> f64 {
    plan.predicted.simulated.ttft.get() + 63.0 * plan.predicted.simulated.tpot.unwrap().get()
}

fn joules(plan: &Plan) -> f64 {
    plan.predicted.energy_per_token.unwrap().get()
}

/// If waiting drew no power, the plan of least energy would let a GPU wait for the link most of the
/// time.
#[test]
fn the_least_energy_does_not_wait_for_a_link_where_waiting_draws_power() {
    let machine = Library::default().machine("spr-a100").unwrap();
    let mut free = machine.clone();
    free.devices.iter_mut().for_each(|device| device.idle_power = None);
    println!("batch  quickest              least energy          if waiting were free");
    for batch in [1, 8, 64] {
        let quick = planned(&machine, batch, Objective::Latency);
        let frugal = planned(&machine, batch, Objective::Energy);
        let absurd = planned(&free, batch, Objective::Energy);
        let streamed = answered(&machine, batch, Objective::Energy, |question, scorer| {
            follow(question, Rule::AllStreamed, scorer).unwrap()
        });
        let texts =
            [&quick, &frugal, &absurd].map(|p| format!("{:.1} s {:.2} J/token", seconds(p), joules(p)));
        println!("{batch:>5}  {:<21} {:<21} {}", texts[0], texts[1], texts[2]);
        assert!(joules(&frugal) <= joules(&quick) * 1.001, "{batch}");
        assert!(joules(&frugal) < joules(&streamed), "{batch}");
        assert!(seconds(&frugal) * 2.0 < seconds(&absurd), "{batch}");
        assert!(seconds(&frugal) <= seconds(&quick) * 1.3, "{batch}");
    }
}
