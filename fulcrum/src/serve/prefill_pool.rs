//! Engines of two kinds: some compute prompts and the first token, the others decode. What is kept
//! of a prompt goes over a link from one kind to the other (Zhong et al., "DistServe", 2024).
//!
//! Requests do not depend on answers, so the day of the first kind is simulated whole, and its
//! answers are the requests of the second.

use super::engine_day::EngineDay;
use super::engine_sizing::KvResidency;
use super::engines::EngineFleet;
use super::tables::DayTables;
use crate::error::{Error, Result};
use hwprofiles::{Bytes, BytesPerSec, Machine, Seconds};
use scenarios::{Requests, Serving};
use sim::serving::{EngineSettings, FrontEnd, Request, RequestOutcome, ServedRequest, StationTimes};
use sim::{SimTime, Tick};
use std::collections::BTreeMap;

/// The engines that compute prompts, and the link to the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefillPool {
    /// How many engines it has.
    engines: u64,
    /// The time of a transfer without its bytes, and the rate of the bytes.
    latency: Seconds,
    bandwidth: BytesPerSec,
}

impl PrefillPool {
    /// `engines` of the engines of `serving`, of which `each` are side by side on `machine`.
    ///
    /// # Errors
    /// No engine is left to decode, no link is known, or requests depend on answers.
    pub(crate) fn new(engines: u64, serving: &Serving, machine: &Machine, each: u64) -> Result<Self> {
        let refuse = |key: &str, why: &str| Err(Error::input(format!("workload.{key}: {why}")));
        if engines >= serving.replicas {
            let all = serving.replicas;
            return refuse("prefill_engines", &format!("{engines} of {all} engines leave none to decode"));
        }
        if matches!(serving.requests, Requests::Closed { .. }) {
            return refuse(
                "prefill_engines",
                "a prompt's engine is simulated before the others, and users wait for both: use arrivals or a trace",
            );
        }
        if serving.rebalance || !serving.shifts.is_empty() {
            return refuse("prefill_engines", "it does not go with shifts and rebalance: leave one out");
        }
        let gpus = machine.identical_gpus();
        let link = match (&gpus[..], each) {
            ([one, other, ..], 2..) => {
                machine.link_between(machine.device(*one).memory, machine.device(*other).memory)
            }
            _ => None,
        };
        let (latency, bandwidth) = match (serving.kv_link, link.map(|link| machine.link(link))) {
            (Some(bandwidth), _) => (Seconds::ZERO, bandwidth),
            (None, Some(link)) => (link.latency.value, link.bandwidth.value),
            (None, None) => {
                return refuse(
                    "kv_link",
                    "it is missing: how fast the KV cache goes from one machine to another, like \"50 GB/s\"",
                );
            }
        };
        Ok(Self { engines, latency, bandwidth })
    }

    /// The day of all engines of `fleet`.
    pub(crate) fn day<'f>(
        &self,
        fleet: &'f EngineFleet<'_>,
        residency: &KvResidency,
        tables: DayTables<'_>,
    ) -> Result<Vec<EngineDay<'f>>> {
        let all = fleet.requests()?;
        let engine = fleet.engine(0);
        let first = |request: &Request| Request { output_tokens: 1, ..request.clone() };
        let prompts = all.iter().map(first).collect();
        let mut days = fleet.pool_day(prompts, engine.clone(), self.engines, tables)?;
        let mut prefilled = BTreeMap::new();
        for end in days.iter_mut().flat_map(EngineDay::take_ends).collect::<Vec<_>>() {
            match end {
                RequestOutcome::Served(served) => {
                    prefilled.insert(served.id, served);
                }
                rejected @ RequestOutcome::Rejected(..) => days[0].tell(&rejected),
            }
        }
        let mut handed = Vec::new();
        for request in all {
            let Some(served) = prefilled.get(&request.id) else { continue };
            match request.output_tokens {
                1 => days[0].tell(&RequestOutcome::Served(*served)),
                _ => handed.push(self.handed_over(&request, served, &engine, residency)),
            }
        }
        handed.sort_by_key(|request| (request.arrival, request.id));
        let none = StationTimes::default();
        let front_end = FrontEnd { tokeniser: none, per_request: SimTime::ZERO, ..engine.front_end };
        let decoder = EngineSettings { prefilled: true, front_end, ..engine };
        let mut decoding = fleet.pool_day(handed, decoder, fleet.replicas() - self.engines, tables)?;
        for end in decoding.iter_mut().flat_map(EngineDay::take_ends).collect::<Vec<_>>() {
            match end {
                RequestOutcome::Served(last) => {
                    let first = &prefilled[&last.id];
                    days[0].tell(&RequestOutcome::Served(joined(first, &last)));
                }
                rejected @ RequestOutcome::Rejected(..) => days[0].tell(&rejected),
            }
        }
        days.extend(decoding);
        Ok(days)
    }

    /// The request for the rest of an answer, once the prompt's KV cache is there.
    fn handed_over(
        &self,
        request: &Request,
        served: &ServedRequest,
        engine: &EngineSettings,
        residency: &KvResidency,
    ) -> Request {
        let block = residency.pool.as_f64() / engine.num_blocks.max(1) as f64;
        let blocks = request.prompt_tokens.div_ceil(engine.block_size) as f64;
        let bytes = Bytes::new((blocks * block) as u64) + residency.state + residency.windows;
        let time = self.latency + bytes / self.bandwidth;
        Request {
            id: request.id,
            arrival: served.last_token + SimTime::rounding_up(time, Tick::Picosecond),
            prompt_tokens: request.prompt_tokens + 1,
            output_tokens: request.output_tokens - 1,
            prefix: vec![],
        }
    }
}

/// A request whose first token came from one engine and whose others came from another.
fn joined(first: &ServedRequest, last: &ServedRequest) -> ServedRequest {
    ServedRequest {
        output_tokens: last.output_tokens + 1,
        last_token: last.last_token,
        preemptions: first.preemptions + last.preemptions,
        ..*first
    }
}
