//! What a server tells Prometheus.

use fulcrum::{AnswerTimes, FinishReason, OnlineEvent};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Labels of a value: a name and its text.
type Labels = [(&'static str, &'static str); 1];

/// A histogram of times from 0.1 ms to 14 minutes.
type Times = Family<Labels, Histogram, fn() -> Histogram>;

const MEASURED: Labels = [("source", "measured")];
const PREDICTED: Labels = [("source", "predicted")];

/// Counts and times of a service, beside what its plan predicts.
pub(crate) struct ServiceMetrics {
    registry: Registry,
    ttft: Times,
    tpot: Times,
    pass_seconds: Family<Labels, Counter<f64, AtomicU64>>,
    requests: Family<Labels, Counter>,
    prompt_tokens: Counter,
    output_tokens: Counter,
    running: Gauge,
    waiting: Gauge,
    kv_use: Gauge<f64, AtomicU64>,
    /// Tokens that the KV cache has room for.
    kv_tokens: f64,
}

impl ServiceMetrics {
    /// Nothing has happened yet; the KV cache has room for so many tokens.
    pub(crate) fn new(kv_tokens: u64) -> Self {
        let times = || Times::new_with_constructor(|| Histogram::new(exponential_buckets(1e-4, 2.0, 24)));
        let mut metrics = Self {
            registry: Registry::with_prefix("fulcrum"),
            ttft: times(),
            tpot: times(),
            pass_seconds: Family::default(),
            requests: Family::default(),
            prompt_tokens: Counter::default(),
            output_tokens: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            kv_use: Gauge::default(),
            kv_tokens: kv_tokens as f64,
        };
        let registry = &mut metrics.registry;
        let predicted = "measured, and predicted: with every pass as long as the plan says";
        let help = format!("From a request's arrival to its first token; {predicted}");
        registry.register("time_to_first_token_seconds", help, metrics.ttft.clone());
        let help = format!("Between tokens of an answer, the first one left out; {predicted}");
        registry.register("time_per_output_token_seconds", help, metrics.tpot.clone());
        let help = "Time of all passes, measured and predicted";
        registry.register("pass_seconds", help, metrics.pass_seconds.clone());
        let help = "Requests that are over, by what came of them: finished, cancelled by their client, refused by the \
                    session, turned_away (429) or failed";
        registry.register("requests", help, metrics.requests.clone());
        registry.register("prompt_tokens", "Tokens of answered prompts", metrics.prompt_tokens.clone());
        registry.register("output_tokens", "Tokens of answers", metrics.output_tokens.clone());
        registry.register(
            "requests_running",
            "Requests that have a place in a batch",
            metrics.running.clone(),
        );
        registry.register("requests_waiting", "Requests that wait for one", metrics.waiting.clone());
        let help = "Share of the KV cache's tokens that are used";
        registry.register("kv_cache_usage_ratio", help, metrics.kv_use.clone());
        metrics
    }

    /// Counts what the session tells.
    pub(crate) fn observe(&self, event: OnlineEvent<'_>) {
        match event {
            OnlineEvent::Finished { answer, measured, predicted } => {
                let is_whole = matches!(answer.finish, FinishReason::Length | FinishReason::Stop);
                self.count(if is_whole { "finished" } else { "failed" });
                self.prompt_tokens.inc_by(answer.prompt_tokens);
                self.output_tokens.inc_by(answer.tokens.len() as u64);
                self.add_times(&MEASURED, measured);
                self.add_times(&PREDICTED, predicted);
            }
            OnlineEvent::Refused => self.count("refused"),
            OnlineEvent::Cancelled => self.count("cancelled"),
            OnlineEvent::PassDone { report, predicted } => {
                let measured = (report.end - report.begin).as_secs_f64();
                self.pass_seconds.get_or_create(&MEASURED).inc_by(measured);
                self.pass_seconds.get_or_create(&PREDICTED).inc_by(predicted);
                self.running.set(report.running as i64);
                self.kv_use.set(report.cached_tokens as f64 / self.kv_tokens);
            }
        }
    }

    /// Counts a request that came to `end`.
    pub(crate) fn count(&self, end: &'static str) {
        self.requests.get_or_create(&[("result", end)]).inc();
    }

    fn add_times(&self, source: &Labels, AnswerTimes { ttft, tpot }: AnswerTimes) {
        self.ttft.get_or_create(source).observe(ttft);
        if let Some(tpot) = tpot {
            self.tpot.get_or_create(source).observe(tpot);
        }
    }

    /// The text for Prometheus, where `in_flight` requests run or wait.
    pub(crate) fn to_text(&self, in_flight: usize) -> String {
        self.waiting.set((in_flight as i64 - self.running.get()).max(0));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}
