//! The tables of a day of serving.

use crate::table_file::{self, Cell, Column};
use sim::serving::{Picos, Series, Served, Stretch};
use std::path::Path;

fn seconds(time: Picos) -> Option<f64> {
    Some(time.to_seconds().get())
}

/// Times are in seconds.
const REQUESTS: [Column<Served>; 13] = [
    ("request", Cell::Count(|one| Some(one.id))),
    ("arrival_s", Cell::Number(|one| seconds(one.arrival))),
    ("prompt_tokens", Cell::Count(|one| Some(one.prompt_tokens))),
    ("output_tokens", Cell::Count(|one| Some(one.output_tokens))),
    ("scheduled_s", Cell::Number(|one| seconds(one.scheduled))),
    ("first_token_s", Cell::Number(|one| seconds(one.first_token))),
    ("last_token_s", Cell::Number(|one| seconds(one.last_token))),
    ("ttft_s", Cell::Number(|one| seconds(one.ttft()))),
    ("tpot_s", Cell::Number(|one| seconds(one.tpot()?))),
    ("e2el_s", Cell::Number(|one| seconds(one.e2el()))),
    ("cached_tokens", Cell::Count(|one| Some(one.cached_tokens))),
    ("fetched_tokens", Cell::Count(|one| Some(one.fetched_tokens))),
    ("preemptions", Cell::Count(|one| Some(u64::from(one.preemptions)))),
];

/// One line for each request, in the order of their numbers. They come in the order of their ends, from several engines, so
/// all of them are in memory before the first is written.
pub fn write_requests(path: &Path, served: &mut [Served]) -> anyhow::Result<()> {
    served.sort_by_key(|one| one.id);
    table_file::write(path, &REQUESTS, served)
}

/// A stretch with what its columns are shares of.
struct Line {
    start: f64,
    every: f64,
    replicas: f64,
    stretch: Stretch,
}

/// With six digits behind the point: a step's share in a stretch is no rounder.
fn rounded(value: f64) -> Option<f64> {
    const DIGITS: f64 = 1_000_000.0;
    Some((value * DIGITS).round() / DIGITS)
}

/// `metrics.md` says what they are.
const SERIES: [Column<Line>; 8] = [
    ("start_s", Cell::Number(|line| Some(line.start))),
    ("steps", Cell::Number(|line| rounded(line.stretch.steps))),
    ("utilization", Cell::Number(|line| rounded(line.stretch.busy / line.every / line.replicas))),
    ("mean_running", Cell::Number(|line| rounded(line.stretch.running / line.every))),
    ("mean_waiting", Cell::Number(|line| rounded(line.stretch.waiting / line.every))),
    ("prompt_tokens_per_s", Cell::Number(|line| rounded(line.stretch.prompt_tokens / line.every))),
    ("output_tokens_per_s", Cell::Number(|line| rounded(line.stretch.output_tokens / line.every))),
    ("least_free_blocks", Cell::Count(|line| line.stretch.least_free_blocks)),
];

/// One line for each stretch of time, in order.
pub fn write_series(path: &Path, series: &Series, replicas: u64) -> anyhow::Result<()> {
    let every = series.every().to_seconds().get();
    let line = |(index, &stretch): (usize, &Stretch)| Line {
        start: index as f64 * every,
        every,
        replicas: replicas as f64,
        stretch,
    };
    let lines: Vec<_> = series.stretches().iter().enumerate().map(line).collect();
    table_file::write(path, &SERIES, &lines)
}
