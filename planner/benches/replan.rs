//! Time of one decision of the replanner: Llama-3.1-70B with random batches, contexts and
//! slowdowns.

use hwprofiles::{DType, Library, Ratio, Seconds};
use planner::{CostModel, GridCell, PhaseTimes, Placement, Problem, Replanner, plan_grid};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};
use std::time::Instant;

const QUERIES: usize = 100_000;

fn main() {
    let model = Model::preset("llama-3.1-70b").expect("a preset");
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::F32 };
    for name in ["rtx4090-desktop", "spr-h100-cxl"] {
        let machine = Library::default().machine(name).expect("shipped");
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
        let workload = Workload { batch: 16, prompt_tokens: 2048, output_tokens: 128, speculation: None };
        let problem = Problem {
            cost_model,
            draft: None,
            requirements: Requirements { workload, objective, slo, costs },
        };
        let scored = PhaseTimes { ttft: Seconds::new(1e4), tpot: Some(Seconds::new(1e4)) };
        // The placements of a table come from the solver and have several runs of layers.
        let cell = GridCell { batch: 16, prompt_tokens: 2048, weight: Ratio::ONE };
        let score = |_: &Workload, _: &Placement, _: u64| Ok(scored);
        let table = plan_grid(&problem, &[cell], &score).expect("it fits");
        let placement = table.placements[0].placement(&machine, &model).expect("its own plan");
        let start = Instant::now();
        let batches = [1, 2, 4, 8, 16, 32];
        let contexts = [128, 512, 2048, 8192, 32_768];
        let mut replanner = Replanner::new(cost_model, &placement, &batches, &contexts).expect("priced");
        let made = start.elapsed();
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut times = Vec::with_capacity(QUERIES);
        let mut runs = 0;
        for _ in 0..QUERIES {
            let (batch, context) = (1 + random(32), 1 + random(32_768));
            let slowdown = [0; 2].map(|_| Ratio::new(1.0 + random(900) as f64 / 100.0).expect("positive"));
            let start = Instant::now();
            let decision = replanner.decide(batch, context, &slowdown);
            times.push(start.elapsed());
            runs = decision.runs().count();
        }
        times.sort_unstable();
        let at = |share: f64| times[((QUERIES - 1) as f64 * share) as usize];
        println!(
            "{name:<16} p50 {:?}, p99 {:?}, most {:?}; {runs} runs; made in {made:?}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}
