//! Results of queueing theory, within sampling error.

use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64;
use sim::SimTime;
use sim::serving::{
    AdmissionPolicy, Batch, EngineObserver, EngineSettings, FrontEnd, HostTimes, ObservedSteps, Replica,
    Request, RequestOutcome, Reserve, SequenceBlocks, StateSnapshots, StepLine, StepPrices, serve,
};

/// A step takes `step`, plus `token` for each token that enters.
#[derive(Debug, Clone, Copy)]
pub struct Prices {
    pub step: u64,
    pub token: u64,
}

impl StepPrices for Prices {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, hwprofiles::MissingRate> {
        Ok(SimTime::from_picos(self.step + self.token * (batch.tokens() - batch.decodes)))
    }

    fn decode(&mut self, _: u64, tokens: u64) -> Result<StepLine, hwprofiles::MissingRate> {
        Ok(StepLine { from: tokens, until: u64::MAX, base: self.step, per_token: 0 })
    }
}

pub fn engine(max_num_seqs: u64) -> EngineSettings {
    EngineSettings {
        max_num_seqs,
        max_num_batched_tokens: 1 << 40,
        max_model_len: 1 << 40,
        num_blocks: 1 << 40,
        block_size: 16,
        sequence: SequenceBlocks::default(),
        snapshots: StateSnapshots::default(),
        chunked_prefill: false,
        prefix_caching: false,
        prefix_tokens: 16,
        prefilled: false,
        prefill_first: false,
        reserve: Reserve::Prompt,
        policy: AdmissionPolicy::Fcfs,
        swap: None,
        second_level: None,
        host: HostTimes::default(),
        front_end: FrontEnd::default(),
    }
}

/// Sums over the observed requests and steps.
#[derive(Default)]
pub struct Sums {
    pub time: f64,
    count: f64,
    /// The integral over time of the sequences in the engine, waiting or running.
    inside: f64,
    last: u64,
}

impl EngineObserver for Sums {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        let sequences = steps.batch.decodes + steps.batch.chunks.len() as u64 + steps.waiting as u64;
        self.inside += sequences as f64 * (steps.end.picos() - steps.begin.picos()) as f64;
        self.last = steps.end.picos();
    }

    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(served) = end {
            self.time += served.e2el().picos() as f64;
            self.count += 1.0;
        }
    }
}

const REQUESTS: u64 = 300_000;

/// `requests` Poisson arrivals with a mean gap of `gap`, and lengths from `lengths`.
pub fn poisson(
    requests: u64,
    gap: f64,
    mut lengths: impl FnMut(f64) -> (u64, u64),
) -> impl Iterator<Item = Request> {
    let mut random = Pcg64::seed_from_u64(7);
    let mut at = 0.0;
    (0..requests).map(move |id| {
        at += gap * random.sample::<f64, _>(Exp1);
        let (prompt_tokens, output_tokens) = lengths(random.sample::<f64, _>(Exp1));
        Request { id, arrival: SimTime::from_picos(at as u64), prompt_tokens, output_tokens, prefix: vec![] }
    })
}

/// The mean time in the system.
fn mean_time(seqs: u64, prices: Prices, gap: f64, lengths: impl FnMut(f64) -> (u64, u64)) -> Sums {
    let (mut sums, mut replica) = (Sums::default(), Replica::new(engine(seqs), prices));
    serve(&mut poisson(REQUESTS, gap, lengths), &mut replica, &mut sums).unwrap();
    assert_eq!(sums.count, REQUESTS as f64);
    sums
}

fn assert_near(ours: f64, theory: f64) {
    assert!((ours / theory - 1.0).abs() < 0.03, "{ours} for {theory}");
}

#[test]
fn one_server_of_constant_steps_waits_as_m_d_1() {
    // ρ = 0.7: W = S + ρ S / (2 (1 − ρ)).
    let (service, load) = (1e6, 0.7);
    let sums = mean_time(1, Prices { step: 1_000_000, token: 0 }, service / load, |_| (1, 1));
    assert_near(sums.time / sums.count, service + load * service / (2.0 * (1.0 - load)));
}

#[test]
fn one_server_of_exponential_steps_waits_as_m_m_1() {
    // ρ = 0.6: W = S / (1 − ρ). Prompts have a mean of a thousand tokens, a microsecond each.
    let load = 0.6;
    let prices = Prices { step: 0, token: 1000 };
    let sums = mean_time(1, prices, 1e6 / load, |x| ((1000.0 * x).round().max(1.0) as u64, 1));
    assert_near(sums.time / sums.count, 1e6 / (1.0 - load));
}

#[test]
fn a_batch_of_four_that_do_not_slow_each_other_waits_as_m_m_4() {
    // Answers have a mean of 500 steps. Erlang's C for four servers at ρ = 0.75 is 0.509434.
    let (service, servers, load) = (500.0 * 1e3, 4.0, 0.75);
    let prices = Prices { step: 1000, token: 0 };
    let sums = mean_time(4, prices, service / (servers * load), |x| (1, (500.0 * x).ceil().max(1.0) as u64));
    let waits = 0.509_434 * service / (servers * (1.0 - load));
    assert_near(sums.time / sums.count, service + waits);
}

#[test]
fn as_many_are_inside_as_come_times_how_long_they_stay() {
    let prices = Prices { step: 1000, token: 1 };
    let sums = mean_time(16, prices, 3e4, |x| (1 + (10.0 * x) as u64, 1 + (400.0 * x) as u64));
    let (arriving, staying) = (sums.count / sums.last as f64, sums.time / sums.count);
    assert_near(sums.inside / sums.last as f64, arriving * staying);
}

#[test]
fn twice_the_rates_and_half_the_latencies_halve_every_time() {
    let run = |scale: u64| {
        let lengths = |id: u64| (1 + id * 7919 % 90, 1 + id * 104_729 % 70);
        let mut requests = (0..500u64).map(|id| {
            let (prompt_tokens, output_tokens) = lengths(id);
            Request {
                id,
                arrival: SimTime::from_picos(id * 3000 * scale),
                prompt_tokens,
                output_tokens,
                prefix: vec![],
            }
        });
        #[derive(Default)]
        struct Times(Vec<[u64; 3]>);
        impl EngineObserver for Times {
            fn end(&mut self, end: &RequestOutcome) {
                if let RequestOutcome::Served(served) = end {
                    self.0.push([
                        served.scheduled.picos(),
                        served.first_token.picos(),
                        served.last_token.picos(),
                    ]);
                }
            }
        }
        let prices = Prices { step: 100 * scale, token: 7 * scale };
        let mut engine =
            EngineSettings { num_blocks: 40, max_num_batched_tokens: 64, chunked_prefill: true, ..engine(8) };
        engine.host =
            HostTimes { per_step: SimTime::from_picos(13 * scale), per_sequence: SimTime::from_picos(scale) };
        let (mut times, mut replica) = (Times::default(), Replica::new(engine, prices));
        serve(&mut requests, &mut replica, &mut times).unwrap();
        times.0
    };
    let halved: Vec<_> = run(2).into_iter().map(|times| times.map(|time| time / 2)).collect();
    assert_eq!(run(1), halved);
}
