//! A simulated day as OpenMetrics text with times, for a Prometheus that already watches a server.
//!
//! `promtool tsdb create-blocks-from openmetrics FILE DIR` makes blocks of it. The names are those
//! that `fulcrum serve` tells, so that one dashboard shows both.

use sim::serving::{Series, SeriesBucket};
use std::fmt::Write as _;

/// Where a simulated day begins: 2000-01-01, in seconds of Unix time.
const DAY_BEGINS: f64 = 946_684_800.0;

/// A gauge or a counter: its name, kind, meaning, and value after a stretch of so many seconds.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&SeriesBucket, f64) -> f64,
}

impl Metric {
    fn is_counter(&self) -> bool {
        self.kind == "counter"
    }
}

const METRICS: [Metric; 6] = [
    Metric {
        name: "fulcrum_requests_running",
        kind: "gauge",
        help: "Sequences in passes, the mean over the stretch",
        value: |bucket, every| bucket.running / every,
    },
    Metric {
        name: "fulcrum_requests_waiting",
        kind: "gauge",
        help: "Sequences that wait while passes run, the mean over the stretch",
        value: |bucket, every| bucket.waiting / every,
    },
    Metric {
        name: "fulcrum_pass_seconds",
        kind: "counter",
        help: "Time of all passes, summed over all engines",
        value: |bucket, _| bucket.busy,
    },
    Metric {
        name: "fulcrum_passes",
        kind: "counter",
        help: "Passes; one over several stretches counts in each by its share",
        value: |bucket, _| bucket.steps,
    },
    Metric {
        name: "fulcrum_prompt_tokens",
        kind: "counter",
        help: "Tokens of prompts that entered",
        value: |bucket, _| bucket.prompt_tokens,
    },
    Metric {
        name: "fulcrum_output_tokens",
        kind: "counter",
        help: "Tokens of answers",
        value: |bucket, _| bucket.output_tokens,
    },
];

/// The text: of every metric its value at the end of each stretch; counters sum up.
pub(crate) fn open_metrics(series: &Series) -> String {
    let every = series.bucket_time().to_seconds().get();
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| writeln!(text, "{words}").expect("a String takes all");
    for metric in &METRICS {
        let Metric { name, kind, help, value } = metric;
        line(format_args!("# HELP {name} {help}."));
        line(format_args!("# TYPE {name} {kind}"));
        let ending = if metric.is_counter() { "_total" } else { "" };
        // A server tells the same metric with what it measured, too.
        let label = if *name == "fulcrum_pass_seconds" { "{source=\"predicted\"}" } else { "" };
        let mut sum = 0.0;
        for (index, bucket) in series.buckets().iter().enumerate() {
            let new = value(bucket, every);
            sum = if metric.is_counter() { sum + new } else { new };
            let end = DAY_BEGINS + (index + 1) as f64 * every;
            line(format_args!("{name}{ending}{label} {sum} {end:.6}"));
        }
    }
    text + "# EOF\n"
}
