//! Plans the scenarios of the given files, and prints how long that takes.

use planner::{CostModel, Problem};
use scenarios::{Document, FileCatalog};
use std::time::Instant;
fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario = Document::from_yaml(&file, &text).unwrap().scenario_with(&[]).unwrap();
        let found = scenario.resolve(&FileCatalog::default()).unwrap();
        let cost_model = CostModel {
            machine: &found.machines[0],
            model: &found.model,
            formats: &found.formats.allowed[0],
        };
        let problem = Problem { cost_model, requirements: found.requirements, draft: None };
        let calls = std::sync::Mutex::new((0, 0.0));
        let score = |placement: &_, chunk| {
            let start = Instant::now();
            let times = sim::estimate(cost_model, placement, &found.requirements.workload, chunk);
            let mut calls = calls.lock().unwrap();
            calls.0 += 1;
            calls.1 += start.elapsed().as_secs_f64();
            times
        };
        for _ in 0..3 {
            *calls.lock().unwrap() = (0, 0.0);
            let start = Instant::now();
            let effort = std::env::var("EFFORT").map_or(0, |effort| effort.parse().unwrap());
            let plan = planner::plan_improved(&problem, planner::Effort::new(effort), &score);
            let took = start.elapsed().as_secs_f64() * 1e3;
            let calls = *calls.lock().unwrap();
            match plan {
                Ok(plan) => {
                    println!(
                        "{file}: {took:.1} ms, {} simulations of {:.2} ms, {:?} {:?} chunk {} slots {}",
                        calls.0,
                        calls.1 / calls.0 as f64 * 1e3,
                        plan.predicted.simulated,
                        plan.predicted.proven,
                        plan.prefill_chunk,
                        plan.staging_slots
                    );
                    if std::env::var("SHOW").is_ok() {
                        println!("{}", plan.to_yaml());
                    }
                }
                Err(error) => println!("{file}: {took:.1} ms {error}"),
            }
        }
    }
}
