//! A day of requests that come and go, served for real beside what the simulator expects of the same requests.

use crate::exit::{Failure, Outcome, Sort};
use crate::feed::Feed;
use crate::live::Live;
use crate::pipeline::{Planned, Question};
use crate::serve_tables::write_requests;
use anyhow::anyhow;
use executor::{Answer, Batching, Client, Event, Request, Sampling};
use planner::Programs;
use rand::{Rng, SeedableRng};
use scenarios::{EngineChoice, EngineName, Requests, Routing, Serving};
use serde_json::{Value, json};
use sim::serving::{End, Engine, Host, Picos, PlanPrices, Replica, Served, Source, Watch};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The requests of a file, and the engine that they go to.
pub struct Day {
    serving: Serving,
    engine: Engine,
    scheduler: scenarios::Scheduler,
}

impl Day {
    /// That of a scenario, or of a table of requests; on the slots of `planned`.
    ///
    /// # Errors
    /// A scenario for another model, a static batch, an engine that does what is simulated only.
    pub fn read(file: &Path, planned: &Planned) -> Outcome<Self> {
        let is_table = file.extension().is_some_and(|end| end == "csv" || end == "jsonl");
        let (serving, choice) = match is_table {
            true => {
                let requests = Requests::Trace { path: file.to_owned(), requests: None, speedup: 1.0 };
                let routing = Routing::default();
                let serving =
                    Serving { requests, seed: 1, replicas: 1, routing, shifts: vec![], rebalance: false };
                (serving, EngineChoice::default())
            }
            false => scenario(file, planned)?,
        };
        let extent = planned.plan.extent();
        let draft = Engine::of(&choice, extent.batch, extent.context + 1);
        let seqs = choice.max_num_seqs.unwrap_or(extent.batch);
        let engine = Engine {
            max_num_seqs: seqs,
            max_num_batched_tokens: choice.max_num_batched_tokens.unwrap_or(extent.batch * extent.chunk),
            // A slot of the KV cache is a block.
            num_blocks: extent.batch,
            block_size: extent.context,
            prefix_tokens: extent.context,
            prefix_caching: false,
            host: Host::default(),
            ..draft
        };
        Ok(Self { serving, engine, scheduler: choice.scheduler })
    }

    /// How passes are made up.
    pub fn batching(&self) -> Batching {
        Batching {
            max_num_seqs: self.engine.max_num_seqs,
            max_num_batched_tokens: self.engine.max_num_batched_tokens,
            prefill_first: self.engine.prefill_first,
            scheduler: self.scheduler,
        }
    }

    /// What the simulator expects.
    pub fn forecast(&self, planned: &Planned) -> Outcome<Vec<Served>> {
        let programs = Programs::lower(&planned.machine, &planned.model, &planned.placement).or_input()?;
        let mut replica = Replica::new(self.engine.clone(), PlanPrices::new(planned.pricing(), &programs));
        let (mut feed, mut all) = (Feed::of(&self.serving, 0, 1)?, All(vec![]));
        sim::serving::serve(&mut feed, &mut replica, &mut all).or_input()?;
        feed.wrong.map_or(Ok(all.0), Err).or_input()
    }

    /// What really happens: the requests' prompts are random tokens.
    pub fn run(&self, live: &mut Live<'_>, sampling: Sampling) -> Outcome<Vec<Served>> {
        let asked = Asking {
            feed: Feed::of(&self.serving, 0, 1)?,
            vocab: live.planned.model.vocab,
            seed: self.serving.seed,
            sampling,
        };
        let mut service = live.session.service(self.batching(), asked).or_input()?;
        let mut all = Vec::new();
        live.serve(&mut service, |event| match event {
            Event::Answered(answer) => all.push(served(&answer)),
            Event::Refused { reason, .. } => crate::terminal::errln!("note: {reason}"),
            Event::Token { .. } | Event::Made(_) => {}
        })?;
        service.into_client().feed.wrong.map_or(Ok(all), Err).or_input()
    }
}

fn scenario(file: &Path, planned: &Planned) -> Outcome<(Serving, EngineChoice)> {
    let name = file.display();
    let question = Question::read(file, &[])?;
    let input = |message: String| Err(Failure::Input(anyhow!("{name}: {message}")));
    if (scenarios::Model { name: planned.model.name.clone(), ..question.model.clone() }) != planned.model {
        let (theirs, ours) = (&question.model.name, &planned.model.name);
        return input(format!("model: the requests are for '{theirs}', the plan is for '{ours}'"));
    }
    let Some(serving) = question.serving else {
        return input("workload: a static batch is no requests that come and go: arrivals, concurrency or trace is wanted".to_owned());
    };
    let EngineChoice { name: engine, swap, prefix_cache, chunked_prefill, .. } = &question.engine;
    for (key, given) in [
        ("engine.name", *engine != EngineName::Fulcrum),
        ("engine.preemption", swap.is_some()),
        ("engine.prefix_cache", prefix_cache.is_some()),
        ("engine.chunked_prefill", *chunked_prefill == Some(false)),
        ("workload.replicas", serving.replicas > 1),
        ("shifts", !serving.shifts.is_empty()),
        ("rebalance", serving.rebalance),
    ] {
        if given {
            return input(format!(
                "{key}: `fulcrum sim` knows it, a real run has no such thing: leave it out"
            ));
        }
    }
    Ok((serving, question.engine))
}

/// Everything that was answered.
struct All(Vec<Served>);

impl Watch for All {
    fn end(&mut self, end: &End) {
        if let End::Served(served) = end {
            self.0.push(*served);
        }
    }
}

/// A [`Feed`] whose requests have words.
struct Asking {
    feed: Feed,
    vocab: u64,
    seed: u64,
    sampling: Sampling,
}

impl Client for Asking {
    fn next(&mut self) -> Option<Request> {
        let request = self.feed.next()?;
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(self.seed.wrapping_add(request.id));
        let prompt = (0..request.prompt_tokens).map(|_| (random.next_u64() % self.vocab) as u32).collect();
        Some(Request {
            id: request.id,
            arrival: Duration::from_nanos(request.arrival.0 / 1000),
            prompt,
            output_tokens: request.output_tokens,
            sampling: self.sampling,
            // Answers are as long as those that were forecast.
            stop: vec![],
        })
    }

    fn sooner(&mut self, held: &mut Request) {
        let mut same = sim::serving::Request {
            id: held.id,
            arrival: picos(held.arrival),
            prompt_tokens: held.prompt.len() as u64,
            output_tokens: held.output_tokens,
            prefix: vec![],
        };
        self.feed.sooner(&mut same);
        held.arrival = Duration::from_nanos(same.arrival.0 / 1000);
    }

    fn done(&mut self, _id: u64, at: Duration) {
        self.feed.done(picos(at));
    }
}

fn picos(time: Duration) -> Picos {
    Picos((time.as_nanos() as u64).saturating_mul(1000))
}

fn served(answer: &Answer) -> Served {
    Served {
        id: answer.id,
        arrival: picos(answer.arrival),
        prompt_tokens: answer.prompt_tokens,
        output_tokens: answer.tokens.len() as u64,
        scheduled: picos(answer.scheduled),
        first_token: picos(answer.first_token),
        last_token: picos(answer.last_token),
        cached_tokens: 0,
        fetched_tokens: 0,
        preemptions: 0,
    }
}

/// What was measured beside what was forecast.
pub struct Compared {
    measured: Vec<Served>,
    forecast: Vec<Served>,
}

impl Compared {
    /// Both, of the same requests.
    pub fn of(measured: Vec<Served>, forecast: Vec<Served>) -> Self {
        Self { measured, forecast }
    }

    /// Writes a line for each request that was answered, and for each that was expected to be.
    pub fn write(&mut self, requests: Option<&Path>, forecast: Option<&Path>) -> Outcome {
        for (path, served) in [(requests, &mut self.measured), (forecast, &mut self.forecast)] {
            path.map_or(Ok(()), |path| write_requests(path, served)).or_failed()?;
        }
        Ok(())
    }

    /// Of the requests that were answered, what was measured and what was forecast: a run may have been ended before all were.
    fn both(&self) -> [Vec<Served>; 2] {
        let ids: BTreeSet<u64> = self.measured.iter().map(|one| one.id).collect();
        let forecast = self.forecast.iter().filter(|one| ids.contains(&one.id));
        [self.measured.clone(), forecast.copied().collect()]
    }

    /// Name, and seconds as measured and as forecast, of each figure.
    fn rows(&self) -> Vec<(String, [Option<f64>; 2])> {
        let both = self.both();
        let quantities: [(&str, Quantity); 3] =
            [("TTFT", |one| Some(one.ttft())), ("TPOT", |one| one.tpot()), ("E2EL", |one| Some(one.e2el()))];
        let mut rows = Vec::new();
        for (name, of) in quantities {
            for (share, label) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")] {
                rows.push((format!("{name} {label}"), both.each_ref().map(|all| quantile(all, of, share))));
            }
        }
        rows.push(("duration".to_owned(), both.each_ref().map(|all| duration(all))));
        rows
    }

    /// The figures.
    pub fn json(&self) -> Value {
        let key = |name: &str| name.to_lowercase().replace(' ', "_") + "_s";
        let side = |side: usize| -> serde_json::Map<_, _> {
            self.rows().into_iter().map(|(name, values)| (key(&name), json!(values[side]))).collect()
        };
        json!({"requests": self.measured.len(), "measured": side(0), "forecast": side(1)})
    }
}

/// What a request took of something.
type Quantity = fn(&Served) -> Option<Picos>;

/// The value below which such a share of them is (nearest rank).
fn quantile(all: &[Served], of: Quantity, share: f64) -> Option<f64> {
    let mut values: Vec<Picos> = all.iter().filter_map(of).collect();
    values.sort_unstable();
    let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len().max(1));
    values.get(rank - 1).map(|value| value.to_seconds().get())
}

/// From the first arrival to the last token.
fn duration(all: &[Served]) -> Option<f64> {
    let first = all.iter().map(|one| one.arrival).min()?;
    let last = all.iter().map(|one| one.last_token).max()?;
    Some((last - first).to_seconds().get())
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens: u64 = self.measured.iter().map(|one| one.output_tokens).sum();
        writeln!(f, "{} requests answered, {tokens} output tokens", self.measured.len())?;
        writeln!(f, "  {:<10} {:>12} {:>12}", "", "measured", "forecast")?;
        for (name, [measured, forecast]) in self.rows() {
            let text = |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| hwprofiles::Seconds::new(value).to_string())
            };
            let error = measured.zip(forecast).filter(|(measured, _)| *measured > 0.0);
            let error = error.map_or(String::new(), |(m, f)| format!("  {:+.1} %", (f / m - 1.0) * 100.0));
            writeln!(f, "  {name:<10} {:>12} {:>12}{error}", text(measured), text(forecast))?;
        }
        Ok(())
    }
}
