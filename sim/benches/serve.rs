//! Requests per second of the serving simulator, for Llama-3.1-8B on an H100: a recorded hour of a
//! conversation service, and 10⁴, 10⁵ and 10⁶ Poisson requests.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hwprofiles::{DType, Library, Machine};
use planner::{CostModel, PhasePrograms, Placement};
use scenarios::{
    Arrivals, EngineChoice, EngineProfile, Formats, Length, Model, RequestTrace, Slo, WeightFormats,
};
use sim::SimTime;
use sim::Tick;
use sim::serving::{
    EngineObserver, EngineSettings, GeneratedRequests, ObservedSteps, PlanPrices, Replica, Request,
    RequestOutcome, RequestSource, ResourceMeter, SummaryCollector, kv_blocks, serve,
};
use std::hint::black_box;

fn day(machine: &Machine, source: &mut impl RequestSource) -> u64 {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
    let cost_model = CostModel { machine, model: &model, formats: &formats };
    let gpu = machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap();
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let programs = PhasePrograms::lower(machine, &model, &placement).unwrap();
    let choice = EngineChoice { profile: EngineProfile::shipped("vllm").unwrap(), ..EngineChoice::default() };
    let blocks = kv_blocks(cost_model, &placement, 16, 8192, 0.9).unwrap();
    let mut replica = Replica::new(
        EngineSettings::from_choice(&choice, blocks, model.max_positions),
        PlanPrices::new(cost_model, &programs),
    );
    let mut day = Day {
        tally: SummaryCollector::new(Slo::default()),
        meter: ResourceMeter::new(cost_model, &programs),
    };
    serve(source, &mut replica, &mut day).unwrap();
    black_box(day.meter.resource_use().unwrap());
    day.tally.summary(0, 0).requests.completed
}

/// The observer of `fulcrum sim`.
struct Day<'a> {
    tally: SummaryCollector,
    meter: ResourceMeter<'a>,
}

impl EngineObserver for Day<'_> {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        self.tally.steps(steps);
        self.meter.steps(steps);
    }

    fn gaps(&mut self, gap: SimTime, times: u64) {
        self.tally.gaps(gap, times);
    }

    fn preempted(&mut self) {
        self.tally.preempted();
    }

    fn end(&mut self, end: &RequestOutcome) {
        self.tally.end(end);
    }
}

fn serving(c: &mut Criterion) {
    // Reading the machine's file takes 2 ms.
    let machine = Library::default().machine("h100-sxm").unwrap();
    let mut group = c.benchmark_group("serve");
    group.sample_size(10);
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/data/traces/azure_llm_2023_conv.csv"))
            .unwrap();
    group.throughput(Throughput::Elements(19_366));
    group.bench_function("azure conversation", |b| {
        b.iter(|| {
            let trace = RequestTrace::new(text.as_bytes(), "trace").unwrap().map(Result::unwrap);
            let mut requests = trace.enumerate().map(|(id, row)| Request {
                id: id as u64,
                arrival: SimTime::rounding_up(row.at, Tick::Picosecond),
                prompt_tokens: row.prompt_tokens,
                output_tokens: row.output_tokens,
                prefix: row.prefix,
            });
            assert_eq!(day(&machine, black_box(&mut requests)), 19_366);
        });
    });
    for requests in [10_000, 100_000, 1_000_000] {
        group.throughput(Throughput::Elements(requests));
        group.bench_with_input(BenchmarkId::new("poisson", requests), &requests, |b, &requests| {
            b.iter(|| {
                let prompt = Length::LogNormal { mean: 1155.0, cv: 1.0 };
                let output = Length::LogNormal { mean: 211.0, cv: 0.8 };
                let mut source =
                    GeneratedRequests::open(Arrivals::Poisson { rate: 5.5 }, requests, prompt, output, 1);
                day(&machine, black_box(&mut source))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, serving);
criterion_main!(benches);
