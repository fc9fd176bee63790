//! How far plans are from the best that anything else finds: for machines, models and loads, the
//! plan's simulated latency beside that of the best rule with one number, of every single edit of
//! the plan, and of random moves from it.
//!
//! `cargo run --release -p fulcrum-sim --example regret [questions] [edits] [moves]`: the number of
//! questions, the most edits of each, and the number of random moves of each.

use hwprofiles::{DType, Library, Machine};
use planner::{
    CostModel, Effort, PhaseTimes, Placement, Plan, PlannerError, Problem, Scorer, plan_improved,
    single_edits,
};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, Workload};
use std::time::Instant;

const MACHINES: [&str; 5] = ["rtx4090-desktop", "kt-4090", "spr-a100", "spr-h100-cxl", "gnr-h200"];
const MODELS: [&str; 10] = [
    "gpt-oss-120b",
    "qwen3-235b-a22b",
    "qwen3-30b-a3b",
    "glm-4.5-air",
    "llama-3.1-70b",
    "gemma-3-27b",
    "deepseek-v3",
    "qwen3.5-122b-a10b",
    "minimax-m2.5",
    "llama-4-scout",
];
const LOADS: [[u64; 3]; 4] = [[1, 2048, 256], [1, 16_384, 512], [8, 1024, 256], [64, 512, 128]];

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let number = |at: usize, other: usize| numbers.get(at).copied().unwrap_or(other);
    let (questions, edits, moves) = (number(0, usize::MAX), number(1, usize::MAX), number(2, 0));
    println!(
        "{:<16} {:<18} {:>15} {:>9} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6}",
        "machine", "model", "load", "plan s", "rule", "search", "edits", "moves", "proven", "ms"
    );
    let mut tally = Tally::default();
    // Each machine and model meets one load before any meets the next.
    for (turn, load) in LOADS.into_iter().enumerate() {
        for (at, machine) in MACHINES.into_iter().enumerate() {
            for (with, model) in MODELS.into_iter().enumerate() {
                if tally.asked < questions && (questions > 100 || (at + with + turn) % 4 == 0) {
                    let machine = Library::default().machine(machine).expect("a shipped machine");
                    let Ok(model) = Model::preset(model) else { continue };
                    question(&machine, &model, load, [edits, moves], &mut tally);
                }
            }
        }
    }
    tally.print();
}

#[derive(Default)]
struct Tally {
    asked: usize,
    /// Plan divided by the best of edits and moves.
    regrets: Vec<f64>,
    /// Best rule divided by the plan.
    gains: Vec<f64>,
    /// What the search brought.
    improved: Vec<f64>,
    /// Bound divided by the plan.
    proven: Vec<f64>,
    took: Vec<f64>,
}

impl Tally {
    fn print(mut self) {
        let mean =
            |all: &[f64]| (all.iter().map(|one| one.ln()).sum::<f64>() / all.len().max(1) as f64).exp();
        let worst = |all: &[f64]| all.iter().fold(0.0, |most: f64, &one| most.max(one));
        let quantile = |all: &mut Vec<f64>, share: f64| {
            all.sort_by(f64::total_cmp);
            all.get((all.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
        };
        println!(
            "\n{} questions: regret mean {:.4}, worst {:.4}, above 1 % in {}; against the best rule mean {:.3}, worst \
             {:.3}; the search brought mean {:.3}, most {:.3}",
            self.asked,
            mean(&self.regrets),
            worst(&self.regrets),
            self.regrets.iter().filter(|regret| **regret > 1.01).count(),
            mean(&self.gains),
            self.gains.iter().fold(f64::INFINITY, |least: f64, &one| least.min(one)),
            mean(&self.improved),
            worst(&self.improved),
        );
        println!(
            "gap to the bound: median {:.1} %, p90 {:.1} %; planning: median {:.0} ms, longest {:.0} ms",
            100.0 * (1.0 - quantile(&mut self.proven, 0.5)),
            100.0 * (1.0 - quantile(&mut self.proven, 0.1)),
            1e3 * quantile(&mut self.took, 0.5),
            1e3 * quantile(&mut self.took, 0.999),
        );
    }
}

/// Plans one question in the largest of bf16, int8 and int4 that fits, and compares.
fn question(machine: &Machine, model: &Model, load: [u64; 3], most: [usize; 2], tally: &mut Tally) {
    let [batch, prompt_tokens, output_tokens] = load;
    let workload = Workload { batch, prompt_tokens, output_tokens, speculation: None };
    if workload.check(model).is_err() {
        return;
    }
    for weights in [DType::Bf16, DType::Int8, DType::Int4] {
        let formats = Formats { weights: weights.into(), kv: DType::Bf16, activations: DType::Bf16 };
        let cost_model = CostModel { machine, model, formats: &formats };
        let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
        let requirements = Requirements { workload, objective, slo, costs };
        let problem = Problem { cost_model, draft: None, requirements };
        let score = sim::scorer(cost_model, workload);
        let start = Instant::now();
        match plan_improved(&problem, Effort::PLAN, &score) {
            Ok(plan) => {
                tally.asked += 1;
                tally.took.push(start.elapsed().as_secs_f64());
                return compared(&problem, &plan, most, &*score, tally);
            }
            Err(PlannerError::Infeasible { .. } | PlannerError::NoPlacement { .. }) => {}
            Err(error) => return println!("{} {}: {error}", machine.name, model.name),
        }
    }
}

fn compared(
    problem: &Problem<'_>,
    plan: &Plan,
    [edits, moves]: [usize; 2],
    score: &Scorer<'_>,
    tally: &mut Tally,
) {
    let CostModel { machine, model, .. } = problem.cost_model;
    let workload = problem.requirements.workload;
    let latency = |times: &PhaseTimes| {
        times.ttft.get() + times.tpot.map_or(0.0, |tpot| tpot.get() * (workload.output_tokens - 1) as f64)
    };
    let simulated = |(placement, chunk): &(Placement, u64)| {
        score(placement, *chunk).map_or(f64::INFINITY, |times| latency(&times))
    };
    let own = latency(&plan.predicted.simulated);
    let placement = plan.placement(machine, model).expect("its own plan");
    let mut singles = single_edits(problem, &placement, plan.prefill_chunk);
    if edits < singles.len() {
        let step = singles.len().div_ceil(edits.max(1));
        singles = singles.into_iter().step_by(step).collect();
    }
    let best =
        |all: &[(Placement, u64)]| all.par_iter().map(&simulated).reduce(|| f64::INFINITY, f64::min).min(own);
    let of_edits = best(&singles);
    // A random move: a few edits, one after the other.
    let mut random = rand_pcg::Pcg64::seed_from_u64(1);
    let mut walked = Vec::new();
    while walked.len() < moves {
        let Some((placement, chunk)) = singles.choose(&mut random) else { break };
        let next = single_edits(problem, placement, *chunk);
        let few = random.random_range(1..=20).min(next.len()).max(1);
        walked.extend((0..few).filter_map(|_| next.choose(&mut random).cloned()));
    }
    let of_moves = best(&walked);
    let search = plan.predicted.search.as_ref().expect("it was searched");
    let rule = search.best_rule.as_ref().map_or(f64::NAN, |rule| rule.regret.get());
    let proven = plan.predicted.proven.map_or(f64::NAN, |proven| proven.get());
    tally.regrets.push(own / of_edits.min(of_moves));
    tally.gains.extend((!rule.is_nan()).then_some(rule));
    tally.improved.push(search.improvement.get());
    tally.proven.extend((!proven.is_nan()).then_some(proven));
    let load = format!("{}x{}+{}", workload.batch, workload.prompt_tokens, workload.output_tokens);
    println!(
        "{:<16} {:<18} {load:>15} {own:>9.3} {rule:>7.3} {:>7.3} {:>7.4} {:>7.4} {proven:>7.3} {:>6.0}",
        machine.name,
        model.name,
        search.improvement.get(),
        own / of_edits,
        own / of_moves,
        1e3 * tally.took.last().copied().unwrap_or_default()
    );
}
