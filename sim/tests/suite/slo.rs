//! The value of scheduling by limits: the share of requests that keep them, by load, against first
//! come, first served.

use hwprofiles::{DType, Library, Machine, Seconds, yaml};
use planner::{CostModel, PhasePrograms, Placement};
use scenarios::{
    Arrivals, EngineChoice, EngineProfile, Formats, Length, Model, Scheduler, Slo, WeightFormats,
};
use sim::serving::{
    EngineSettings, GeneratedRequests, PlanPrices, Replica, Summary, SummaryCollector, kv_blocks, serve,
};

const BF16: Formats =
    Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };

/// Four A100s that are one device, as in SOLA's first figure, or one H100.
fn machine(gpus: u64) -> Machine {
    if gpus == 1 {
        return Library::default().machine("h100-sxm").unwrap();
    }
    let parts = format!(
        "parts:\n  cpu: xeon-8168\n  dram: {{capacity: {{value: 1 TB, source: {{estimated: {{reason: \"made up\"}}}}}}}}\n  \
         gpu: {{part: a100-sxm, count: {gpus}, link: nvlink3}}\n  link: pcie4-x16\n"
    );
    let all = Library::default().compose(&yaml::read(&parts, "parts").unwrap()).unwrap();
    all.with_tensor_parallel(gpus).unwrap()
}

/// A model on some GPUs, and the lengths of its requests.
struct Service {
    model: &'static str,
    gpus: u64,
    prompt: Length,
    output: Length,
    ttft: f64,
    tpot: f64,
}

impl Service {
    /// A day of an engine with either scheduler.
    fn day(&self, engine: &str, arrivals: Arrivals, slo: bool) -> Summary {
        let (machine, model) = (machine(self.gpus), Model::preset(self.model).unwrap());
        let cost_model = CostModel { machine: &machine, model: &model, formats: &BF16 };
        let gpu = machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap();
        let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
        let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
        let (ttft, tpot) = (Seconds::new(self.ttft), Seconds::new(self.tpot));
        let scheduler = if slo { Scheduler::Slo { ttft, tpot } } else { Scheduler::Fcfs };
        // The host times of vLLM before its scheduler runs ahead.
        let host = |micros: f64| (engine == "vllm").then(|| Seconds::new(micros * 1e-6));
        let choice = EngineChoice {
            profile: EngineProfile::shipped(engine).unwrap(),
            scheduler,
            host_per_step: host(800.0),
            host_per_sequence: host(40.0),
            ..EngineChoice::default()
        };
        let blocks = kv_blocks(cost_model, &placement, 16, 8192, 0.9).unwrap();
        let engine = EngineSettings::from_choice(&choice, blocks, model.max_positions);
        let mut replica = Replica::new(engine, PlanPrices::new(cost_model, &programs));
        let mut tally = SummaryCollector::new(Slo { ttft: Some(ttft), tpot: Some(tpot) });
        let mut requests = GeneratedRequests::open(arrivals, 2000, self.prompt, self.output, 1);
        serve(&mut requests, &mut replica, &mut tally).unwrap();
        tally.summary(0, 0)
    }
}

/// Attainment with both schedulers, first come, first served first.
fn attained(service: &Service, arrivals: Arrivals) -> [f64; 2] {
    [false, true].map(|slo| service.day("vllm", arrivals, slo).slo_attainment)
}

#[test]
fn more_requests_keep_their_limits_and_where_all_can_all_do() {
    let (chat, conversation) = (
        [Length::LogNormal { mean: 220.0, cv: 1.2 }, Length::LogNormal { mean: 190.0, cv: 1.0 }],
        [Length::LogNormal { mean: 1155.0, cv: 1.0 }, Length::LogNormal { mean: 211.0, cv: 0.8 }],
    );
    let service = |name, model, gpus, [prompt, output]: [Length; 2], ttft, tpot| {
        (name, Service { model, gpus, prompt, output, ttft, tpot })
    };
    let services = [
        service("70B on 4 A100, chat, 0.5 s and 200 ms", "llama-3.1-70b", 4, chat, 0.5, 0.2),
        service("70B on 4 A100, conversation, 0.5 s and 50 ms", "llama-3.1-70b", 4, conversation, 0.5, 0.05),
        service("8B on an H100, conversation, 0.5 s and 30 ms", "llama-3.1-8b", 1, conversation, 0.5, 0.03),
    ];
    let mut most = [0.0f64; 3];
    for ((name, service), most) in services.iter().zip(&mut most) {
        println!("{name}");
        for rate in [1.0, 2.0, 4.0, 8.0, 10.0, 12.0, 16.0, 24.0, 48.0] {
            let [steady, bursty] = [Arrivals::Poisson { rate }, Arrivals::Gamma { rate, cv: 3.0 }]
                .map(|arrivals| attained(service, arrivals));
            let percent = |[fcfs, slo]: [f64; 2]| format!("{:5.1} -> {:5.1}", 100.0 * fcfs, 100.0 * slo);
            println!("  {rate:4} req/s: {}, in bursts {}", percent(steady), percent(bursty));
            for [fcfs, slo] in [steady, bursty] {
                assert!(slo >= fcfs - 0.015, "{name}, {rate} req/s: {slo} after {fcfs}");
                *most = most.max(slo - fcfs);
            }
        }
    }
    assert!(most[0] > 0.45 && most[1] > 0.2 && most[2] > 0.65, "{most:?}");
}
