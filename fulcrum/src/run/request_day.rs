//! A day of requests that come and go, served for real beside the simulator's forecast of the same
//! requests.

use super::session::{LiveOptions, LiveSession};
use crate::error::{Error, OrError, Result};
use crate::pipeline::{PreparedScenario, ResolvedPlan, read_scenario};
use crate::progress::{ProgressEvent, no_progress};
use crate::serve::{DayTables, RequestFeed, serve_day, write_requests};
use executor::{
    Batching, Checkpoint, Client, GenerationEvent, GenerationRequest, GenerationResult, Sampling,
};
use planner::PhasePrograms;
use rand::{Rng, SeedableRng};
use scenarios::{EngineChoice, EngineProfile, Model, Requests, Routing, Scheduler, Serving};
use serde_json::{Map, Value, json};
use sim::SimTime;
use sim::serving::{
    EngineObserver, EngineSettings, HostTimes, PlanPrices, Replica, RequestOutcome, RequestSource,
    ServedRequest,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The requests of a file, and the engine that answers them.
pub struct RequestDay {
    serving: Serving,
    engine: EngineSettings,
    scheduler: Scheduler,
}

impl RequestDay {
    /// The requests of a scenario, or of a table that ends in `.csv` or `.jsonl`, on the slots of
    /// `planned`.
    ///
    /// # Errors
    /// The scenario is for another model, has a static batch, or asks for an engine that is only
    /// simulated.
    pub fn read(file: &Path, planned: &ResolvedPlan) -> Result<Self> {
        let is_table = file.extension().is_some_and(|end| end == "csv" || end == "jsonl");
        let (serving, choice) = match is_table {
            true => {
                let requests = Requests::Trace { path: file.to_owned(), requests: None, speedup: 1.0 };
                let routing = Routing::default();
                let serving = Serving {
                    requests,
                    distinct_prompts: None,
                    asked_before: vec![],
                    beams: 1,
                    prefill_engines: vec![],
                    kv_link: None,
                    seed: 1,
                    replicas: 1,
                    routing,
                    shifts: vec![],
                    rebalance: false,
                };
                (serving, EngineChoice::default())
            }
            false => read_serving(file, planned)?,
        };
        let extent = planned.plan.extent();
        let draft = EngineSettings::from_choice(&choice, extent.batch, extent.context + 1);
        let seqs = choice.max_num_seqs.unwrap_or(extent.batch);
        let engine = EngineSettings {
            max_num_seqs: seqs,
            max_num_batched_tokens: choice.max_num_batched_tokens.unwrap_or(extent.batch * extent.chunk),
            // A slot of the KV cache is a block.
            num_blocks: extent.batch,
            block_size: extent.context,
            prefix_tokens: extent.context,
            prefix_caching: false,
            host: HostTimes::default(),
            ..draft
        };
        Ok(Self { serving, engine, scheduler: choice.scheduler })
    }

    /// How passes are made of requests.
    fn batching(&self) -> Batching {
        Batching {
            max_num_seqs: self.engine.max_num_seqs,
            max_num_batched_tokens: self.engine.max_num_batched_tokens,
            prefill_first: self.engine.prefill_first,
            scheduler: self.scheduler,
        }
    }

    /// The simulator's forecast.
    ///
    /// # Errors
    /// A rate is missing, or the table of requests is wrong.
    pub fn forecast(&self, planned: &ResolvedPlan) -> Result<Vec<ServedRequest>> {
        let programs =
            PhasePrograms::lower(&planned.machine, &planned.model, &planned.placement).or_input()?;
        let mut replica = Replica::new(self.engine.clone(), PlanPrices::new(planned.cost_model(), &programs));
        let (mut feed, mut all) = (RequestFeed::new(&self.serving, 0, 1, 1)?, ServedRequests(vec![]));
        sim::serving::serve(&mut feed, &mut replica, &mut all).or_input()?;
        feed.wrong.map_or(Ok(all.0), Err).or_input()
    }

    /// Serves the requests for real. Their prompts are random tokens.
    ///
    /// # Errors
    /// A device fails, or the table of requests is wrong.
    pub fn run(&self, live: &mut LiveSession<'_>, sampling: Sampling) -> Result<Vec<ServedRequest>> {
        let client = RequestDayClient::new(&self.serving, live.planned.model.vocab, sampling)?;
        let mut service = live.session.service(self.batching(), client).or_input()?;
        let mut all = Vec::new();
        let progress = live.options.progress;
        live.run_service(&mut service, |event| match event {
            GenerationEvent::Finished(answer) => all.push(served(&answer)),
            GenerationEvent::Refused { reason, .. } => progress(ProgressEvent::Note(&reason.to_string())),
            _ => {}
        })?;
        service.into_client().check().map(|()| all)
    }
}

/// Requests for a server, and how the simulator answers them.
pub struct EndpointDay {
    serving: Serving,
    vocab: u64,
    /// The forecast, request by request.
    pub forecast: Vec<ServedRequest>,
}

impl EndpointDay {
    /// The requests of `file` (see [`RequestDay::read`]) for a server that runs `planned`.
    ///
    /// # Errors
    /// As [`RequestDay::read`] and [`RequestDay::forecast`].
    pub fn for_plan(file: &Path, planned: &ResolvedPlan) -> Result<Self> {
        let day = RequestDay::read(file, planned)?;
        let forecast = day.forecast(planned)?;
        Ok(Self { serving: day.serving, vocab: planned.model.vocab, forecast })
    }

    /// The requests of a scenario for `fulcrum sim`, for a server that is its engine.
    ///
    /// # Errors
    /// As [`serve_day`]; the scenario has several engines.
    pub fn for_scenario(scenario: &PreparedScenario) -> Result<Self> {
        let day = serve_day(scenario, DayTables { keeps_requests: true, ..DayTables::default() })?;
        let serving = scenario.serving().expect("a day was simulated").clone();
        Ok(Self { serving, vocab: scenario.model().vocab, forecast: day.requests })
    }

    /// The requests, greedy, with prompts of random tokens.
    ///
    /// # Errors
    /// A table of requests cannot be read.
    pub fn client(&self) -> Result<RequestDayClient> {
        RequestDayClient::new(&self.serving, self.vocab, Sampling::Greedy)
    }
}

/// The requests and the engine of a scenario.
fn read_serving(file: &Path, planned: &ResolvedPlan) -> Result<(Serving, EngineChoice)> {
    let name = file.display();
    let scenario = PreparedScenario::new(&read_scenario(file, &[])?)?;
    let refused = |message: String| Err(Error::input(format!("{name}: {message}")));
    let model = scenario.model();
    if (Model { name: planned.model.name.clone(), ..model.clone() }) != planned.model {
        let (theirs, ours) = (&model.name, &planned.model.name);
        return refused(format!("model: the requests are for '{theirs}', the plan is for '{ours}'"));
    }
    let Some(serving) = scenario.serving() else {
        return refused("workload: a static batch is no requests that come and go: arrivals, concurrency or trace is wanted".to_owned());
    };
    let EngineChoice { profile, swap, prefix_cache, chunked_prefill, .. } = scenario.engine();
    for (key, given) in [
        ("engine.name", *profile != EngineProfile::default()),
        ("engine.preemption", swap.is_some()),
        ("engine.prefix_cache", prefix_cache.is_some()),
        ("engine.chunked_prefill", *chunked_prefill == Some(false)),
        ("workload.beams", serving.beams > 1),
        ("workload.replicas", serving.replicas > 1),
        ("shifts", !serving.shifts.is_empty()),
        ("rebalance", serving.rebalance),
    ] {
        if given {
            return refused(format!(
                "{key}: `fulcrum sim` knows it, a real run has no such thing: leave it out"
            ));
        }
    }
    Ok((serving.clone(), scenario.engine().clone()))
}

/// The requests that were answered.
struct ServedRequests(Vec<ServedRequest>);

impl EngineObserver for ServedRequests {
    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(served) = end {
            self.0.push(*served);
        }
    }
}

/// The requests of a day with prompts of random tokens, in the order in which they come.
pub struct RequestDayClient {
    feed: RequestFeed,
    vocab: u64,
    seed: u64,
    sampling: Sampling,
}

impl RequestDayClient {
    /// The requests of `serving`; tokens are below `vocab`.
    ///
    /// # Errors
    /// A table of requests cannot be read.
    pub(crate) fn new(serving: &Serving, vocab: u64, sampling: Sampling) -> Result<Self> {
        Ok(Self { feed: RequestFeed::new(serving, 0, 1, 1)?, vocab, seed: serving.seed, sampling })
    }

    /// Tells what was wrong with the table of requests, where it ended early.
    ///
    /// # Errors
    /// A line of the table is wrong.
    pub fn check(self) -> Result {
        self.feed.wrong.map_or(Ok(()), Err).or_input()
    }
}

impl Client for RequestDayClient {
    fn next(&mut self) -> Option<GenerationRequest> {
        let request = self.feed.next()?;
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(self.seed.wrapping_add(request.id));
        let prompt = (0..request.prompt_tokens).map(|_| (random.next_u64() % self.vocab) as u32).collect();
        Some(GenerationRequest {
            id: request.id,
            arrival: Duration::from_nanos(request.arrival.nanos()),
            prompt,
            output_tokens: request.output_tokens,
            sampling: self.sampling,
            // No token ends an answer: it is as long as in the forecast.
            stop: vec![],
            logprobs: None,
        })
    }

    fn exchange_for_earlier(&mut self, held: &mut GenerationRequest) {
        let mut same = sim::serving::Request {
            id: held.id,
            arrival: sim_time(held.arrival),
            prompt_tokens: held.prompt.len() as u64,
            output_tokens: held.output_tokens,
            prefix: vec![],
        };
        self.feed.replace_if_sooner(&mut same);
        held.arrival = Duration::from_nanos(same.arrival.nanos());
    }

    fn finished(&mut self, _id: u64, at: Duration) {
        self.feed.done(sim_time(at));
    }
}

fn sim_time(time: Duration) -> SimTime {
    SimTime::from_nanos(time.as_nanos() as u64)
}

fn served(answer: &GenerationResult) -> ServedRequest {
    ServedRequest {
        id: answer.id,
        arrival: sim_time(answer.arrival),
        prompt_tokens: answer.prompt_tokens,
        output_tokens: answer.tokens.len() as u64,
        scheduled: sim_time(answer.scheduled),
        first_token: sim_time(answer.first_token),
        last_token: sim_time(answer.last_token),
        cached_tokens: 0,
        fetched_tokens: 0,
        preemptions: 0,
    }
}

/// A figure of a served day.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedFigure {
    /// Its name: `TTFT p50`, `duration`.
    pub name: String,
    /// In seconds, as measured.
    pub measured: Option<f64>,
    /// In seconds, as forecast.
    pub forecast: Option<f64>,
}

/// Requests as they were served, beside their forecast.
#[derive(Debug)]
pub struct ServedComparison {
    measured: Vec<ServedRequest>,
    forecast: Vec<ServedRequest>,
}

/// Serves the requests of a scenario, or of a table, with `planned` for real, beside the forecast
/// of the simulator.
///
/// ```
/// let scenario = "{machine: example-loopback, model: fulcrum-tiny,
///     workload: {batch: 2, prompt_tokens: 8, output_tokens: 4}}";
/// let planned = fulcrum::plan(&fulcrum::parse_scenario(scenario)?)?;
/// let folder = tempfile::tempdir()?;
/// let model = folder.path().join("model");
/// fulcrum::init_model(&planned.model, &model, 1)?;
/// let checkpoint = fulcrum::Checkpoint::open(&model)?;
/// let requests = folder.path().join("requests.csv");
/// std::fs::write(&requests, "arrival_s,prompt_tokens,output_tokens\n0,5,3\n0.01,8,2\n")?;
/// let served = fulcrum::serve(&planned, &checkpoint, &requests)?;
/// assert_eq!((served.requests(), served.output_tokens()), (2, 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The requests are wrong or for another model, or a device fails.
pub fn serve(planned: &ResolvedPlan, checkpoint: &Checkpoint, requests: &Path) -> Result<ServedComparison> {
    let day = RequestDay::read(requests, planned)?;
    let forecast = day.forecast(planned)?;
    let interrupted = AtomicBool::new(false);
    let options = LiveOptions { replan: false, interrupted: &interrupted, progress: &no_progress };
    let mut live = LiveSession::new(planned, checkpoint, options)?;
    let measured = day.run(&mut live, Sampling::Greedy)?;
    Ok(ServedComparison::new(measured, forecast))
}

impl ServedComparison {
    /// The measured and the forecast day of the same requests.
    pub fn new(measured: Vec<ServedRequest>, forecast: Vec<ServedRequest>) -> Self {
        Self { measured, forecast }
    }

    /// How many requests were answered.
    pub fn requests(&self) -> usize {
        self.measured.len()
    }

    /// How many tokens the answers have.
    pub fn output_tokens(&self) -> u64 {
        self.measured.iter().map(|one| one.output_tokens).sum()
    }

    /// Writes a row for each request that was answered, and for each that was forecast.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&mut self, requests: Option<&Path>, forecast: Option<&Path>) -> Result {
        for (path, served) in [(requests, &mut self.measured), (forecast, &mut self.forecast)] {
            path.map_or(Ok(()), |path| write_requests(path, served))?;
        }
        Ok(())
    }

    /// The requests that were answered, as measured and as forecast. A run may have been ended
    /// before all were.
    fn both(&self) -> [Vec<ServedRequest>; 2] {
        let ids: BTreeSet<u64> = self.measured.iter().map(|one| one.id).collect();
        let forecast = self.forecast.iter().filter(|one| ids.contains(&one.id));
        [self.measured.clone(), forecast.copied().collect()]
    }

    /// The figures of the day.
    pub fn figures(&self) -> Vec<ServedFigure> {
        let both = self.both();
        let quantities: [(&str, Quantity); 3] =
            [("TTFT", |one| Some(one.ttft())), ("TPOT", |one| one.tpot()), ("E2EL", |one| Some(one.e2el()))];
        let figure =
            |name: String, [measured, forecast]: [Option<f64>; 2]| ServedFigure { name, measured, forecast };
        let mut figures = Vec::new();
        for (name, quantity) in quantities {
            for (share, label) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")] {
                let values = both.each_ref().map(|all| quantile(all, quantity, share));
                figures.push(figure(format!("{name} {label}"), values));
            }
        }
        figures.push(figure("duration".to_owned(), both.each_ref().map(|all| duration(all))));
        figures
    }

    /// The figures as JSON.
    pub fn to_json(&self) -> Value {
        let key = |name: &str| name.to_lowercase().replace(' ', "_") + "_s";
        let (mut measured, mut forecast) = (Map::new(), Map::new());
        for figure in self.figures() {
            measured.insert(key(&figure.name), json!(figure.measured));
            forecast.insert(key(&figure.name), json!(figure.forecast));
        }
        json!({"requests": self.requests(), "measured": measured, "forecast": forecast})
    }
}

/// A time of a request.
type Quantity = fn(&ServedRequest) -> Option<SimTime>;

/// The quantile at `share`, by nearest rank, in seconds.
fn quantile(all: &[ServedRequest], quantity: Quantity, share: f64) -> Option<f64> {
    let mut values: Vec<SimTime> = all.iter().filter_map(quantity).collect();
    values.sort_unstable();
    let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len().max(1));
    values.get(rank - 1).map(|value| value.to_seconds().get())
}

/// The seconds from the first arrival to the last token.
fn duration(all: &[ServedRequest]) -> Option<f64> {
    let first = all.iter().map(|one| one.arrival).min()?;
    let last = all.iter().map(|one| one.last_token).max()?;
    Some((last - first).to_seconds().get())
}
