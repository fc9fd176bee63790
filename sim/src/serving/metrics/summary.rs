//! The summary of a day of serving.

use crate::clock::SimTime;
use crate::serving::engine::observer::{EngineObserver, ObservedSteps, RequestOutcome};
use crate::serving::engine::request::ServedRequest;
use crate::serving::metrics::account::Account;
use crate::serving::metrics::latency::{LatencyHistogram, LatencyStats};
use hwprofiles::Seconds;
use scenarios::Slo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a request is answered within the limits.
fn is_within(slo: &Slo, served: &ServedRequest) -> bool {
    let within = |limit: Option<Seconds>, time: SimTime| limit.is_none_or(|limit| time.to_seconds() <= limit);
    within(slo.ttft, served.ttft()) && within(slo.tpot, served.tpot().unwrap_or(SimTime::ZERO))
}

/// Counts of requests by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Answered requests.
    pub completed: u64,
    /// Requests in the batch when the simulation ended.
    pub running: u64,
    /// Requests in the queue when it ended.
    pub queued: u64,
    /// Rejected requests.
    pub rejected: u64,
    /// Rejected requests by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_for: BTreeMap<String, u64>,
}

/// A day of serving, with the terms of `metrics.md`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Counts of requests.
    pub requests: RequestCounts,
    /// From the first arrival to the last token, seconds.
    pub duration_s: f64,
    /// Time to first token.
    pub ttft_s: LatencyStats,
    /// Time per output token after the first, of each request.
    pub tpot_s: LatencyStats,
    /// Time between a token and the one before it, over all tokens.
    pub itl_s: LatencyStats,
    /// End-to-end latency.
    pub e2el_s: LatencyStats,
    /// Completed requests ÷ duration.
    pub requests_per_s: f64,
    /// Their prompt tokens ÷ duration.
    pub prompt_tokens_per_s: f64,
    /// Their output tokens ÷ duration.
    pub output_tokens_per_s: f64,
    /// Completed requests that keep every limit ÷ duration.
    pub goodput_per_s: f64,
    /// The share of all requests, including rejected ones, that completed and kept every limit.
    pub slo_attainment: f64,
    /// Steps of all engines.
    pub steps: u64,
    /// The share of the duration in which a step ran, mean over engines.
    pub busy_share: f64,
    /// Mean number of sequences in a step.
    pub mean_batch: f64,
    /// How often a running sequence was preempted.
    pub preemptions: u64,
    /// KV blocks that went to the swap space.
    pub swapped_out_blocks: u64,
    /// KV blocks that came back from the swap space.
    pub swapped_in_blocks: u64,
    /// KV blocks of prefixes that were written to the second level of the prefix cache.
    pub stored_blocks: u64,
    /// KV blocks that were overwritten there.
    pub evicted_blocks: u64,
    /// KV blocks that were fetched from there. A block that is fetched twice counts twice.
    pub fetched_blocks: u64,
    /// Tokens that were fetched from there ÷ prompt tokens. Tokens that a preempted sequence
    /// fetches again count again.
    pub fetched_share: f64,
    /// Tokens that were found in the KV cache ÷ prompt tokens. Tokens that a preempted sequence
    /// finds again count again.
    pub cached_share: f64,
    /// The fewest free KV blocks at the end of a step; 0 without a step.
    pub least_free_blocks: u64,
    /// The use of the machine, if a plan gives the work of the steps.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

/// Observes engines and adds up their summary. Its size does not grow with the number of requests.
#[derive(Debug, Clone)]
pub struct SummaryCollector {
    limits: Slo,
    engines: u64,
    counts: RequestCounts,
    ttft: LatencyHistogram,
    tpot: LatencyHistogram,
    itl: LatencyHistogram,
    e2el: LatencyHistogram,
    tokens: TokenCounts,
    /// Requests that kept every limit.
    kept: u64,
    /// The first arrival and the last token.
    first: Option<SimTime>,
    last: SimTime,
    steps: u64,
    sequences: u64,
    busy: SimTime,
    preemptions: u64,
    blocks: BlockCounts,
    /// The fewest free KV blocks at the end of a step.
    least_free: Option<u64>,
}

/// Tokens of answered requests.
#[derive(Debug, Clone, Copy, Default)]
struct TokenCounts {
    prompt: u64,
    output: u64,
    cached: u64,
    fetched: u64,
}

/// KV blocks that moved.
#[derive(Debug, Clone, Copy, Default)]
struct BlockCounts {
    swapped_out: u64,
    swapped_in: u64,
    stored: u64,
    evicted: u64,
    fetched: u64,
}

impl SummaryCollector {
    /// An empty collector for one engine.
    pub fn new(limits: Slo) -> Self {
        Self {
            limits,
            engines: 1,
            counts: RequestCounts::default(),
            ttft: LatencyHistogram::default(),
            tpot: LatencyHistogram::default(),
            itl: LatencyHistogram::default(),
            e2el: LatencyHistogram::default(),
            tokens: TokenCounts::default(),
            kept: 0,
            first: None,
            last: SimTime::ZERO,
            steps: 0,
            sequences: 0,
            busy: SimTime::ZERO,
            preemptions: 0,
            blocks: BlockCounts::default(),
            least_free: None,
        }
    }

    fn note_arrival(&mut self, at: SimTime) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }

    fn served(&mut self, served: &ServedRequest) {
        self.note_arrival(served.arrival);
        self.last = self.last.max(served.last_token);
        self.counts.completed += 1;
        self.ttft.add(served.ttft(), 1);
        self.e2el.add(served.e2el(), 1);
        if let Some(tpot) = served.tpot() {
            self.tpot.add(tpot, 1);
        }
        self.tokens.prompt += served.prompt_tokens;
        self.tokens.output += served.output_tokens;
        self.tokens.cached += served.cached_tokens;
        self.tokens.fetched += served.fetched_tokens;
        self.kept += u64::from(is_within(&self.limits, served));
    }

    /// The summary, with `running` and `queued` requests that have not ended.
    pub fn summary(&self, running: u64, queued: u64) -> Summary {
        let duration = self.last.saturating_sub(self.first.unwrap_or(SimTime::ZERO)).to_seconds().get();
        let per_second = |count: u64| if duration > 0.0 { count as f64 / duration } else { 0.0 };
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let requests = RequestCounts { running, queued, ..self.counts.clone() };
        let all = requests.completed + requests.rejected + running + queued;
        Summary {
            duration_s: duration,
            ttft_s: self.ttft.stats(),
            tpot_s: self.tpot.stats(),
            itl_s: self.itl.stats(),
            e2el_s: self.e2el.stats(),
            requests_per_s: per_second(requests.completed),
            prompt_tokens_per_s: per_second(self.tokens.prompt),
            output_tokens_per_s: per_second(self.tokens.output),
            goodput_per_s: per_second(self.kept),
            slo_attainment: share(self.kept as f64, all as f64),
            steps: self.steps,
            busy_share: share(self.busy.to_seconds().get(), duration * self.engines as f64),
            mean_batch: share(self.sequences as f64, self.steps as f64),
            preemptions: self.preemptions,
            swapped_out_blocks: self.blocks.swapped_out,
            swapped_in_blocks: self.blocks.swapped_in,
            stored_blocks: self.blocks.stored,
            evicted_blocks: self.blocks.evicted,
            fetched_blocks: self.blocks.fetched,
            fetched_share: share(self.tokens.fetched as f64, self.tokens.prompt as f64),
            cached_share: share(self.tokens.cached as f64, self.tokens.prompt as f64),
            least_free_blocks: self.least_free.unwrap_or(0),
            account: None,
            requests,
        }
    }

    /// Adds the collector of another replica.
    pub fn join(&mut self, other: &Self) {
        self.engines += other.engines;
        self.counts.completed += other.counts.completed;
        self.counts.rejected += other.counts.rejected;
        for (reason, count) in &other.counts.rejected_for {
            *self.counts.rejected_for.entry(reason.clone()).or_default() += count;
        }
        for (ours, theirs) in [
            (&mut self.ttft, &other.ttft),
            (&mut self.tpot, &other.tpot),
            (&mut self.itl, &other.itl),
            (&mut self.e2el, &other.e2el),
        ] {
            ours.join(theirs);
        }
        self.tokens.prompt += other.tokens.prompt;
        self.tokens.output += other.tokens.output;
        self.tokens.cached += other.tokens.cached;
        self.tokens.fetched += other.tokens.fetched;
        self.kept += other.kept;
        if let Some(first) = other.first {
            self.note_arrival(first);
        }
        self.last = self.last.max(other.last);
        self.steps += other.steps;
        self.sequences += other.sequences;
        self.busy += other.busy;
        self.preemptions += other.preemptions;
        self.blocks.swapped_out += other.blocks.swapped_out;
        self.blocks.swapped_in += other.blocks.swapped_in;
        self.blocks.stored += other.blocks.stored;
        self.blocks.evicted += other.blocks.evicted;
        self.blocks.fetched += other.blocks.fetched;
        self.least_free = [self.least_free, other.least_free].into_iter().flatten().min();
    }
}

impl EngineObserver for SummaryCollector {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        self.steps += steps.count;
        self.sequences += steps.count * (steps.batch.decodes + steps.batch.chunks.len() as u64);
        self.busy += steps.end - steps.begin;
        let least = self.least_free.map_or(steps.free_blocks, |least| least.min(steps.free_blocks));
        self.least_free = Some(least);
    }

    fn gaps(&mut self, gap: SimTime, times: u64) {
        self.itl.add(gap, times);
    }

    fn preempted(&mut self) {
        self.preemptions += 1;
    }

    fn swapped(&mut self, out: u64, back: u64) {
        self.blocks.swapped_out += out;
        self.blocks.swapped_in += back;
    }

    fn stored(&mut self, blocks: u64, evicted: u64) {
        self.blocks.stored += blocks;
        self.blocks.evicted += evicted;
    }

    fn fetched(&mut self, blocks: u64) {
        self.blocks.fetched += blocks;
    }

    fn end(&mut self, end: &RequestOutcome) {
        match end {
            RequestOutcome::Served(served) => self.served(served),
            RequestOutcome::Rejected(request, reason) => {
                self.note_arrival(request.arrival);
                self.counts.rejected += 1;
                *self.counts.rejected_for.entry(reason.to_string()).or_default() += 1;
            }
        }
    }
}
