//! Prints hashes of many outputs.
use crate::laws::serving::{Observations, MarketPrices, by_id, engines, requests, served};
use crate::machine::{machine, placed};
use hwprofiles::{DType, Library, Ratio, Seconds};
use planner::{Placement, CostModel, PhasePrograms, steps};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use scenarios::*;
use sim::Tick;
use sim::serving::*;
use sim::*;
use std::hash::{DefaultHasher, Hash, Hasher};

const FORMATS: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
fn h(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
fn j(v: &impl serde::Serialize) -> String {
    serde_json::to_string(v).unwrap()
}

#[test]
fn hashes() {
    let mut runner = TestRunner::deterministic();
    let mut all = String::new();
    for _ in 0..300 {
        let work = crate::laws::random_programs::works().new_tree(&mut runner).unwrap().current();
        let (spans, duration) = crate::laws::random_programs::simulate(&machine(), &work);
        for span in spans {
            all += &format!("{} {} ", span.start.nanos(), span.end.nanos());
        }
        all += &format!("{}\n", duration.nanos());
    }
    println!("IDENT made_up {:x}", h(&all));
    all.clear();
    for index in 0..40 {
        let (model, placement) = placed(2).new_tree(&mut runner).unwrap().current();
        let machine = machine();
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
        let workload = Workload::new(1 + index % 4, 3 + index * 3, 1 + index % 6);
        let steps = steps(&workload, 16);
        let run = BatchRun::new(cost_model, &programs, &steps);
        all += &run.trace("plan").unwrap().to_json();
        let times = run.times().unwrap();
        all += &format!("{:?} {:?}\n", times.ttft.get(), times.tpot.map(Seconds::get));
        let e = estimate(cost_model, &placement, &workload, 16).unwrap();
        all += &format!("{:?} {:?}\n", e.ttft.get(), e.tpot.map(Seconds::get));
        // Serving on such plans.
        let choice = EngineChoice { name: EngineName::Vllm, ..EngineChoice::default() };
        let engine = ServingEngine { max_num_seqs: 8, ..ServingEngine::from_choice(&choice, 300, 4096) };
        let mut prices = PlanPrices::new(cost_model, &programs);
        let chunks = [PromptChunk { new: 17, past: 5 }];
        let batch = Batch { chunks: &chunks, decodes: 3, decode_tokens: 40, sampled: 4 };
        all += &format!("{}\n", prices.step(&batch).unwrap().picos());
        all += &format!(
            "{:?}\n",
            prices.device_times(&batch).unwrap().iter().map(|s| s.get()).collect::<Vec<_>>()
        );
        let mut replica = Replica::new(engine.clone(), prices);
        let (l, p) = (Length::Uniform { from: 5, to: 60 }, Length::Uniform { from: 1, to: 30 });
        let mut source = GeneratedRequests::open(Arrivals::Poisson { rate: 2000.0 }, 40, l, p, index);
        let mut day = Day {
            tally: SummaryCollector::new(SloLimits::default()),
            meter: ResourceMeter::new(cost_model, &programs),
            picture: ServingTimeline::new(SimTime::from_picos(0)..SimTime::from_picos(1 << 60)),
        };
        serve(&mut source, &mut replica, &mut day).unwrap();
        let mut summary = day.tally.summary(0, 0);
        let resource_use = day.meter.resource_use().unwrap();
        summary.account = Some(Account::new(
            &cost_model,
            &programs,
            &Costs::default(),
            &resource_use,
            Seconds::new(summary.duration_s),
            sim::serving::EngineCount { machines: 1, per_machine: 1 },
        ));
        all += &j(&summary);
        all += &ServingTimeline::perfetto(&[day.picture], "x").unwrap();
        if index % 8 == 0 {
            let forecasts = ForecastTables::new(cost_model, &programs, &engine, 1024).unwrap();
            for rate in [1, 10, 1000] {
                let mut demand = Demand::expected(60.0, 30.0);
                let seen = RequestTotals {
                    requests: rate,
                    prompt_tokens: rate * 60,
                    answers: rate,
                    output_tokens: rate * 30,
                };
                demand.observe(SimTime::rounding_up(Seconds::new(1.0), Tick::Picosecond), seen, 0, 1);
                let f = forecasts.forecast(&demand, 300, &[Ratio::ONE, Ratio::new(3.0).unwrap()]);
                all += &format!("{:?} {:?} {:?}\n", f.load, f.ttft.get(), f.tpot.get());
            }
        }
    }
    println!("IDENT runs {:x}", h(&all));
    all.clear();
    for index in 0..300 {
        let engine = engines().new_tree(&mut runner).unwrap().current();
        let requests = requests(true).new_tree(&mut runner).unwrap().current();
        all += &j(&engine);
        all += &j(&served(&engine, MarketPrices { stretch: 50 }, &requests));
        let mut observed: Vec<Observations> = (0..3).map(|_| Observations::default()).collect();
        let mut fleet: Vec<_> =
            observed.iter().map(|_| Replica::new(engine.clone(), MarketPrices { stretch: 50 })).collect();
        let routing = Routing::ALL[index % Routing::ALL.len()];
        let length = |from, to| Length::Uniform { from, to };
        let mut users = GeneratedRequests::closed(5, 60, length(1, 39), length(1, 29), index as u64)
            .thinking(ThinkTime::LogNormal { mean: Seconds::new(1e-7), cv: 0.4 }, Seconds::new(1e-7));
        serve_fleet(&mut users, &mut fleet, &mut Router::new(routing, 3), &mut (), &mut observed).unwrap();
        all += &j(&observed.into_iter().map(|t| by_id(t.served)).collect::<Vec<_>>());
    }
    println!("IDENT serving {:x}", h(&all));
    all.clear();
    let machine = Library::default().machine("h100-sxm").unwrap();
    let model = Model::preset("llama-3.1-8b").unwrap();
    let cost_model = CostModel { machine: &machine, model: &model, formats: &FORMATS };
    let gpu = machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap();
    let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
    let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
    for name in
        [EngineName::Vllm, EngineName::Sglang, EngineName::TrtLlm, EngineName::LlamaCpp, EngineName::Fulcrum]
    {
        for scheduler in [
            Scheduler::Fcfs,
            Scheduler::ShortestFirst,
            Scheduler::Slo { ttft: Seconds::new(0.5), tpot: Seconds::new(0.02) },
        ] {
            let choice = EngineChoice { name, scheduler, ..EngineChoice::default() };
            let engine = ServingEngine::from_choice(&choice, 4000, model.max_positions);
            let mut replica = Replica::new(engine, PlanPrices::new(cost_model, &programs));
            let limits = SloLimits { ttft: Some(Seconds::new(0.5)), tpot: Some(Seconds::new(0.02)) };
            let mut day = Day {
                tally: SummaryCollector::new(limits),
                meter: ResourceMeter::new(cost_model, &programs),
                picture: ServingTimeline::new(SimTime::from_picos(0)..SimTime::from_picos(1 << 60)),
            };
            let p = Length::LogNormal { mean: 1155.0, cv: 1.0 };
            let o = Length::LogNormal { mean: 211.0, cv: 0.8 };
            let shift = Shift {
                from: Seconds::new(10.0),
                until: Some(Seconds::new(20.0)),
                change: ShiftChange::Busier(Ratio::new(3.0).unwrap()),
            };
            let mut source = ShiftedSource::new(
                GeneratedRequests::open(Arrivals::Gamma { rate: 15.5, cv: 2.0 }, 500, p, o, 1),
                &[shift],
            );
            serve(&mut source, &mut replica, &mut day).unwrap();
            let mut summary = day.tally.summary(0, 0);
            let resource_use = day.meter.resource_use().unwrap();
            summary.account = Some(Account::new(
                &cost_model,
                &programs,
                &Costs::default(),
                &resource_use,
                Seconds::new(summary.duration_s),
                sim::serving::EngineCount { machines: 1, per_machine: 1 },
            ));
            all += &j(&summary);
            all += &ServingTimeline::perfetto(&[day.picture], "x").unwrap();
        }
    }
    println!("IDENT h100 {:x}", h(&all));
}

struct Day<'a> {
    tally: SummaryCollector,
    meter: ResourceMeter<'a>,
    picture: ServingTimeline,
}

impl EngineObserver for Day<'_> {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        self.tally.steps(steps);
        self.meter.steps(steps);
        self.picture.steps(steps);
    }
    fn gaps(&mut self, gap: SimTime, times: u64) {
        self.tally.gaps(gap, times);
    }
    fn preempted(&mut self) {
        self.tally.preempted();
    }
    fn end(&mut self, end: &RequestOutcome) {
        self.tally.end(end);
        self.picture.end(end);
    }
}
