//! Time to make a plan without simulation: 32 layers, 2 devices, 2 memories.

#[path = "../tests/suite/fixture/mod.rs"]
mod fixture;

use criterion::{Criterion, criterion_group, criterion_main};
use fixture::{Spec, formats, model};
use hwprofiles::Seconds;
use planner::{CostModel, PhaseTimes, Placement, Problem, plan};
use scenarios::{Costs, Objective, Requirements, Slo, Workload};

fn planning(criterion: &mut Criterion) {
    let workload = Workload { batch: 4, prompt_tokens: 1024, output_tokens: 128, speculation: None };
    let cases = [
        ("loopback, room for half", Spec::loopback(500_000_000), 1024),
        ("loopback, tight", Spec::loopback(100_000_000), 1024),
        ("gpu, room for a fifth", Spec::gpu(3_000_000_000), 4096),
    ];
    for (name, spec, hidden) in cases {
        let model = model(32, hidden);
        let machine = spec.machine(&model);
        // The score lowers each candidate but does not simulate it.
        let score =
            |_: &Placement, _: u64| Ok(PhaseTimes { ttft: Seconds::new(1e3), tpot: Some(Seconds::new(1e3)) });
        let formats = formats();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
        let problem = Problem {
            cost_model,
            draft: None,
            requirements: Requirements { workload, objective, slo, costs },
        };
        let once = || plan(&problem, &score);
        criterion.bench_function(name, |bencher| bencher.iter(once));
    }
}

criterion_group!(benches, planning);
criterion_main!(benches);
