//! The time of planning, including simulations, with the allocator of the command:
//! `cargo bench -p fulcrum-sim --bench plan`.

use criterion::{Criterion, criterion_group, criterion_main};
use planner::{CostModel, Problem};
use scenarios::{Document, FileCatalog, Setting};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
        let found = scenario.expect("shipped").resolve(&FileCatalog::default()).expect("shipped");
        let cost_model = CostModel {
            machine: &found.machines[0],
            model: &found.model,
            formats: &found.formats.allowed[0],
        };
        let problem = Problem { cost_model, requirements: found.requirements, draft: None };
        criterion.bench_function(&format!("{name}/{batch}x{prompt}"), |bencher| {
            bencher.iter(|| {
                // The scorer of `fulcrum plan`, which knows nothing at first.
                let score = sim::scorer(cost_model, found.requirements.workload);
                planner::plan(&problem, &*score).expect("it fits")
            });
        });
    }
}

criterion_group!(benches, planning);
criterion_main!(benches);
