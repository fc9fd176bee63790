//! What a day of serving comes to.

use super::account::Account;
use super::picos::Picos;
use super::request::Served;
use super::source::End;
use super::watch::{Steps, Watch};
use hdrhistogram::Histogram;
use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits that a request keeps or does not.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// On the time to the first token.
    pub ttft: Option<Seconds>,
    /// On the time per output token.
    pub tpot: Option<Seconds>,
}

impl Limits {
    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.ttft.is_some() || self.tpot.is_some()
    }

    fn keeps(&self, served: &Served) -> bool {
        let within =
            |limit: Option<Seconds>, time: Picos| limit.is_none_or(|limit| time.to_seconds() <= limit);
        within(self.ttft, served.ttft()) && within(self.tpot, served.tpot().unwrap_or(Picos::ZERO))
    }
}

/// A distribution of times, in seconds. The mean is exact; percentiles are those of a histogram whose bins are 0.1 % wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// Nine in ten are not longer.
    pub p90: f64,
    /// Nineteen in twenty.
    pub p95: f64,
    /// Ninety-nine in a hundred.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Where requests are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Answered.
    pub completed: u64,
    /// In the batch when the simulation ended.
    pub running: u64,
    /// In the queue when it ended.
    pub queued: u64,
    /// Not taken.
    pub rejected: u64,
    /// The same by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_for: BTreeMap<String, u64>,
}

/// A day of serving, in the words of `metrics.md`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Requests.
    pub requests: Counts,
    /// From the first arrival to the last token, seconds.
    pub duration_s: f64,
    /// Time to first token.
    pub ttft_s: Spread,
    /// Time per output token after the first, of each request.
    pub tpot_s: Spread,
    /// Between a token and the one before it, of all tokens.
    pub itl_s: Spread,
    /// End-to-end latency.
    pub e2el_s: Spread,
    /// Completed requests ÷ duration.
    pub requests_per_s: f64,
    /// Their prompt tokens ÷ duration.
    pub prompt_tokens_per_s: f64,
    /// Their output tokens ÷ duration.
    pub output_tokens_per_s: f64,
    /// Completed requests that keep every limit ÷ duration.
    pub goodput_per_s: f64,
    /// The share of all requests, those rejected among them, that completed and kept every limit.
    pub slo_attainment: f64,
    /// Steps of the engine.
    pub steps: u64,
    /// The share of the duration in which a step ran, of all engines.
    pub busy_share: f64,
    /// Sequences in a step, mean over steps.
    pub mean_batch: f64,
    /// How often a running sequence was sent back.
    pub preemptions: u64,
    /// KV blocks that went to the swap space.
    pub swapped_out_blocks: u64,
    /// Those that came back.
    pub swapped_in_blocks: u64,
    /// KV blocks of prefixes that were written to the second level of the prefix cache.
    pub stored_blocks: u64,
    /// Those that others overwrote there.
    pub evicted_blocks: u64,
    /// Those that were fetched from there; what is fetched twice counts twice.
    pub fetched_blocks: u64,
    /// The share of prompt tokens (and of what preemptions made to be computed again) that was fetched from there.
    pub fetched_share: f64,
    /// The share of prompt tokens (and of what preemptions made to be computed again) that the KV cache had.
    pub cached_share: f64,
    /// The fewest KV blocks that were free at the end of a step.
    pub least_free_blocks: u64,
    /// What was made of the machine, where a plan says what steps do.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

/// Listens, and adds up. What it keeps does not grow with the number of requests.
#[derive(Debug, Clone)]
pub struct Tally {
    limits: Limits,
    engines: u64,
    counts: Counts,
    ttft: Times,
    tpot: Times,
    itl: Times,
    e2el: Times,
    tokens: [u64; 4],
    kept: u64,
    first: Option<Picos>,
    last: Picos,
    steps: u64,
    sequences: u64,
    busy: Picos,
    preemptions: u64,
    swapped: [u64; 2],
    second_level: [u64; 3],
    least_free: u64,
}

impl Tally {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            engines: 1,
            counts: Counts::default(),
            ttft: Times::new(),
            tpot: Times::new(),
            itl: Times::new(),
            e2el: Times::new(),
            tokens: [0; 4],
            kept: 0,
            first: None,
            last: Picos::ZERO,
            steps: 0,
            sequences: 0,
            busy: Picos::ZERO,
            preemptions: 0,
            swapped: [0; 2],
            second_level: [0; 3],
            least_free: u64::MAX,
        }
    }

    fn came(&mut self, at: Picos) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }

    fn served(&mut self, served: &Served) {
        self.came(served.arrival);
        self.last = self.last.max(served.last_token);
        self.counts.completed += 1;
        self.ttft.add(served.ttft(), 1);
        self.e2el.add(served.e2el(), 1);
        if let Some(tpot) = served.tpot() {
            self.tpot.add(tpot, 1);
        }
        self.tokens[0] += served.prompt_tokens;
        self.tokens[1] += served.output_tokens;
        self.tokens[2] += served.cached_tokens;
        self.tokens[3] += served.fetched_tokens;
        self.kept += u64::from(self.limits.keeps(served));
    }

    /// All of it, where `running` and `queued` requests have not come to their end.
    pub fn summary(&self, running: u64, queued: u64) -> Summary {
        let duration = self.last.saturating_sub(self.first.unwrap_or(Picos::ZERO)).to_seconds().get();
        let per_second = |count: u64| if duration > 0.0 { count as f64 / duration } else { 0.0 };
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let requests = Counts { running, queued, ..self.counts.clone() };
        let all = requests.completed + requests.rejected + running + queued;
        Summary {
            duration_s: duration,
            ttft_s: self.ttft.spread(),
            tpot_s: self.tpot.spread(),
            itl_s: self.itl.spread(),
            e2el_s: self.e2el.spread(),
            requests_per_s: per_second(requests.completed),
            prompt_tokens_per_s: per_second(self.tokens[0]),
            output_tokens_per_s: per_second(self.tokens[1]),
            goodput_per_s: per_second(self.kept),
            slo_attainment: share(self.kept as f64, all as f64),
            steps: self.steps,
            busy_share: share(self.busy.to_seconds().get(), duration * self.engines as f64),
            mean_batch: share(self.sequences as f64, self.steps as f64),
            preemptions: self.preemptions,
            swapped_out_blocks: self.swapped[0],
            swapped_in_blocks: self.swapped[1],
            stored_blocks: self.second_level[0],
            evicted_blocks: self.second_level[1],
            fetched_blocks: self.second_level[2],
            fetched_share: share(self.tokens[3] as f64, self.tokens[0] as f64),
            cached_share: share(self.tokens[2] as f64, self.tokens[0] as f64),
            least_free_blocks: if self.steps == 0 { 0 } else { self.least_free },
            account: None,
            requests,
        }
    }

    /// Joins what another replica's tally heard.
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
        self.tokens.iter_mut().zip(other.tokens).for_each(|(ours, theirs)| *ours += theirs);
        self.kept += other.kept;
        if let Some(first) = other.first {
            self.came(first);
        }
        self.last = self.last.max(other.last);
        self.steps += other.steps;
        self.sequences += other.sequences;
        self.busy += other.busy;
        self.preemptions += other.preemptions;
        self.swapped.iter_mut().zip(other.swapped).for_each(|(ours, theirs)| *ours += theirs);
        self.second_level.iter_mut().zip(other.second_level).for_each(|(ours, theirs)| *ours += theirs);
        self.least_free = self.least_free.min(other.least_free);
    }
}

impl Watch for Tally {
    fn steps(&mut self, steps: &Steps<'_>) {
        self.steps += steps.count;
        self.sequences += steps.count * (steps.batch.decodes + steps.batch.pieces.len() as u64);
        self.busy += steps.end - steps.begin;
        self.least_free = self.least_free.min(steps.free_blocks);
    }

    fn gaps(&mut self, gap: Picos, times: u64) {
        self.itl.add(gap, times);
    }

    fn preempted(&mut self) {
        self.preemptions += 1;
    }

    fn swapped(&mut self, out: u64, back: u64) {
        self.swapped = [self.swapped[0] + out, self.swapped[1] + back];
    }

    fn stored(&mut self, blocks: u64, evicted: u64) {
        self.second_level[0] += blocks;
        self.second_level[1] += evicted;
    }

    fn fetched(&mut self, blocks: u64) {
        self.second_level[2] += blocks;
    }

    fn end(&mut self, end: &End) {
        match end {
            End::Served(served) => self.served(served),
            End::Rejected(request, reason) => {
                self.came(request.arrival);
                self.counts.rejected += 1;
                *self.counts.rejected_for.entry(reason.to_string()).or_default() += 1;
            }
        }
    }
}

/// Times of one kind.
#[derive(Debug, Clone)]
struct Times {
    /// In nanoseconds.
    histogram: Histogram<u64>,
    sum: u128,
    max: Picos,
}

impl Times {
    fn new() -> Self {
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        histogram.auto(true);
        Self { histogram, sum: 0, max: Picos::ZERO }
    }

    fn add(&mut self, time: Picos, times: u64) {
        self.sum += u128::from(time.0) * u128::from(times);
        self.max = self.max.max(time);
        self.histogram.record_n(time.0 / 1000, times).expect("it grows by itself");
    }

    fn join(&mut self, other: &Self) {
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.histogram.add(&other.histogram).expect("it grows by itself");
    }

    fn spread(&self) -> Spread {
        if self.histogram.is_empty() {
            return Spread::default();
        }
        let max = self.max.to_seconds().get();
        let at = |quantile: f64| (self.histogram.value_at_quantile(quantile) as f64 * 1e-9).min(max);
        Spread {
            mean: self.sum as f64 / self.histogram.len() as f64 * 1e-12,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max,
        }
    }
}
