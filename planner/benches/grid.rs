//! Time to plan a table of 96 cells without simulation: Llama-3.1-70B on two machines, 12 batches ×
//! 8 prompt lengths.

use hwprofiles::{DType, Library, Ratio, Seconds};
use planner::{CostModel, GridCell, PhaseTimes, Placement, Problem, plan_grid};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};
use std::time::Instant;

const REPEATS: usize = 5;

fn main() {
    let model = Model::preset("llama-3.1-70b").expect("a preset");
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };
    let prompts = [128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
    let batches = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    let cell = |batch, prompt_tokens| GridCell { batch, prompt_tokens, weight: Ratio::ONE };
    let cells: Vec<_> = batches.into_iter().flat_map(|b| prompts.map(|p| cell(b, p))).collect();
    // A constant score, so that only the planner's time is measured.
    let score = |_: &Workload, _: &Placement, _: u64| {
        Ok(PhaseTimes { ttft: Seconds::new(1.0), tpot: Some(Seconds::new(1.0)) })
    };
    for name in ["rtx4090-desktop", "spr-h100-cxl"] {
        let machine = Library::default().machine(name).expect("shipped");
        let problem = Problem {
            cost_model: CostModel { machine: &machine, model: &model, formats: &formats },
            draft: None,
            requirements: Requirements {
                workload: Workload { batch: 1, prompt_tokens: 1, output_tokens: 128, speculation: None },
                objective: Objective::Latency,
                slo: Slo::default(),
                costs: Costs::default(),
            },
        };
        let mut seconds = Vec::new();
        let mut told = String::new();
        for _ in 0..REPEATS {
            let start = Instant::now();
            let table = plan_grid(&problem, &cells, &score).expect("something fits");
            seconds.push(start.elapsed().as_secs_f64());
            let switching = table.cells.iter().filter(|cell| cell.switch.is_some()).count();
            told = format!(
                "{} cells, {} without a plan, {switching} switch, {} placements, proven {:.3}",
                table.cells.len(),
                table.without.len(),
                table.placements.len(),
                table.sharing.proven.get()
            );
        }
        seconds.sort_by(f64::total_cmp);
        println!(
            "{name:<16} median {:.3} s, most {:.3} s; {told}",
            seconds[REPEATS / 2],
            seconds[REPEATS - 1]
        );
    }
}
