//! The value of a plan. For a grid of models, machines, batches and contexts, prints the simulated
//! latency of the plan beside that of every rule. If bf16 weights do not fit, it tries int8 and
//! then int4.
//!
//! `cargo run --release -p fulcrum-sim --example value [machine] [model]`

use hwprofiles::{DType, Library, Machine, Seconds};
use planner::{CostModel, PhaseTimes, Plan, PlannerError, Problem, plan};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, Workload};
use std::time::Instant;

const MACHINES: [&str; 4] = ["spr-a100", "spr-h100-cxl", "gnr-h200", "rtx4090-desktop"];
const MODELS: [&str; 5] = ["opt-30b", "opt-175b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"];
const BATCHES: [u64; 4] = [1, 8, 64, 512];
const CONTEXTS: [u64; 3] = [512, 4096, 32_768];
const OUTPUT: u64 = 128;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.iter().all(|word| !known(word) || word == name || other(word, name));
    println!(
        "{:<16} {:<14} {:>5} {:>6} {:<5} {:>10} {:>10} {:<13} {:>10} {:>6} {:>8}",
        "machine", "model", "batch", "tokens", "dtype", "plan", "best rule", "", "fill", "gain", "planning"
    );
    let mut tally = Tally::default();
    for machine in MACHINES.into_iter().filter(|name| is_wanted(name)) {
        let machine = Library::default().machine(machine).expect("a shipped machine");
        for model in MODELS.into_iter().filter(|name| is_wanted(name)) {
            let model = Model::preset(model).expect("a preset");
            for batch in BATCHES {
                for context in CONTEXTS {
                    row(&machine, &model, batch, context, &mut tally);
                }
            }
        }
    }
    tally.print();
}

fn known(word: &str) -> bool {
    MACHINES.contains(&word) || MODELS.contains(&word)
}

/// Whether `word` restricts the other kind of names: models if `name` is a machine, and the
/// reverse.
fn other(word: &str, name: &str) -> bool {
    MACHINES.contains(&word) != MACHINES.contains(&name)
}

#[derive(Default)]
struct Tally {
    gains: Vec<f64>,
    over_filling: Vec<f64>,
    alone: usize,
    infeasible: usize,
    planning: Vec<f64>,
}

impl Tally {
    fn print(mut self) {
        let mean =
            |gains: &[f64]| (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
        self.planning.sort_by(f64::total_cmp);
        let least = self.gains.iter().fold(f64::INFINITY, |least, &gain| least.min(gain));
        println!(
            "\n{} questions: a geometric mean of {:.3} times faster than the best rule (never less than {least:.3}), \
             {:.2} times than fill-memory ({} questions); {} where no rule fits, {} infeasible",
            self.gains.len() + self.alone + self.infeasible,
            mean(&self.gains),
            mean(&self.over_filling),
            self.over_filling.len(),
            self.alone,
            self.infeasible
        );
        if let Some(last) = self.planning.last() {
            let median = self.planning[self.planning.len() / 2];
            println!("planning: median {:.1} ms, longest {:.1} ms", median * 1e3, last * 1e3);
        }
    }
}

fn row(machine: &Machine, model: &Model, batch: u64, context: u64, tally: &mut Tally) {
    let workload = Workload { batch, prompt_tokens: context, output_tokens: OUTPUT, speculation: None };
    let place = format!("{:<16} {:<14} {batch:>5} {context:>6}", machine.name, model.name);
    if let Err(error) = workload.check(model) {
        return println!("{place} {error}");
    }
    for weights in [DType::Bf16, DType::Int8, DType::Int4] {
        let formats = Formats { weights: weights.into(), kv: DType::Bf16, activations: DType::Bf16 };
        let cost_model = CostModel { machine, model, formats: &formats };
        let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
        let question = Problem {
            cost_model,
            draft: None,
            requirements: Requirements { workload, objective, slo, costs },
        };
        let start = Instant::now();
        let score = sim::scorer(cost_model, workload);
        match plan(&question, &score) {
            Ok(plan) => {
                tally.planning.push(start.elapsed().as_secs_f64());
                return line(&place, weights, &plan, start.elapsed().as_secs_f64(), tally);
            }
            Err(PlannerError::Infeasible { .. } | PlannerError::NoPlacement { .. }) => {}
            Err(error) => return println!("{place} {weights:<5} {error}"),
        }
    }
    tally.infeasible += 1;
    println!("{place} nothing fits");
}

fn line(place: &str, weights: DType, plan: &Plan, took: f64, tally: &mut Tally) {
    let latency = |times: &PhaseTimes| {
        let tpot = times.tpot.unwrap_or(Seconds::ZERO);
        times.ttft + tpot * (OUTPUT - 1) as f64
    };
    let predicted = &plan.predicted;
    let ours = latency(&predicted.simulated);
    let rules = predicted.baselines.iter().map(|(name, times)| (name.as_str(), latency(times)));
    let best = rules.min_by(|a, b| a.1.total_cmp(&b.1));
    let filled = predicted.baselines.get("fill-memory").map(&latency);
    let text = |time: Option<Seconds>| time.map_or("-".to_owned(), |time| time.to_string());
    let (name, gain) = match best {
        Some((name, best)) => {
            tally.gains.push(best / ours);
            (name, format!("{:.2}", best / ours))
        }
        None => {
            tally.alone += 1;
            ("no rule fits", "-".to_owned())
        }
    };
    tally.over_filling.extend(filled.map(|filled| filled / ours));
    println!(
        "{place} {:<5} {:>10} {:>10} {name:<13} {:>10} {gain:>6} {:>5.1} ms",
        weights.to_string(),
        ours.to_string(),
        text(best.map(|(_, time)| time)),
        text(filled),
        took * 1e3
    );
}
