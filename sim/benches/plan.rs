//! The time of planning, including simulations: `cargo bench -p sim --bench plan`.

use criterion::{Criterion, criterion_group, criterion_main};
use planner::Problem;
use scenarios::{Document, Setting};

/// Models of 126 layers over four memories, and of 61 layers with 256 experts each; with batches
/// and prompt tokens.
const CASES: [(&str, &str, [u64; 2]); 4] = [
    ("llama-405b", include_str!("../../scenarios/examples/llama-405b-four-memories.yaml"), [1, 512]),
    ("llama-405b", include_str!("../../scenarios/examples/llama-405b-four-memories.yaml"), [1, 4096]),
    ("llama-405b", include_str!("../../scenarios/examples/llama-405b-four-memories.yaml"), [64, 512]),
    ("deepseek-v3", include_str!("../../scenarios/examples/deepseek-v3-int8.yaml"), [8, 4096]),
];

fn planning(criterion: &mut Criterion) {
    for (name, text, [batch, prompt]) in CASES {
        let settings = [format!("workload.batch={batch}"), format!("workload.prompt_tokens={prompt}")];
        let settings = settings.map(|setting| setting.parse::<Setting>().expect("a setting"));
        let scenario = Document::from_yaml(name, text).expect("shipped").scenario_with(&settings);
        let found = scenario.expect("shipped").resolve().expect("shipped");
        let machine = found.machine.machine(None, 1).expect("shipped");
        let question = Problem {
            cost_model: planner::CostModel {
                machine: &machine,
                model: &found.model,
                formats: &found.formats.allowed[0],
            },
            workload: found.workload,
            objective: found.objective,
            slo: found.slo.unwrap_or_default(),
            costs: found.costs.unwrap_or_default(),
            draft: None,
        };
        let score = |placement: &_, chunk| sim::estimate(question.cost_model, placement, &found.workload, chunk);
        criterion.bench_function(&format!("{name}/{batch}x{prompt}"), |bencher| {
            bencher.iter(|| planner::plan(&question, &score).expect("it fits"));
        });
    }
}

criterion_group!(benches, planning);
criterion_main!(benches);
