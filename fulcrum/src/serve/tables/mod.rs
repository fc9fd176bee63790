//! The tables of a day of serving.

mod open_metrics;

use super::time_window::TimeWindow;
use crate::error::{OrError, Result};
use crate::table::{CellReader, TableColumn, write_table};
use hwprofiles::{Seconds, write_atomically};
use open_metrics::open_metrics;
use sim::SimTime;
use sim::serving::{Series, SeriesBucket, ServedRequest};
use std::path::Path;

/// The files that are written beside the sums of a day.
#[derive(Debug, Default, Clone, Copy)]
pub struct DayTables<'p> {
    /// A row for each request.
    pub requests: Option<&'p Path>,
    /// A row for each stretch of time, and how long a stretch is.
    pub series: Option<(&'p Path, Seconds)>,
    /// A picture of a window of time, for ui.perfetto.dev.
    pub picture: Option<(&'p Path, TimeWindow)>,
    /// Whether the requests are kept in [`ServedDay::requests`](super::ServedDay::requests) too.
    pub keeps_requests: bool,
}

/// A time as a cell, in seconds.
pub(super) fn seconds(time: SimTime) -> Option<f64> {
    Some(time.to_seconds().get())
}

/// `reports/metrics.md` defines the columns. Times are in seconds.
const REQUESTS: [TableColumn<ServedRequest>; 13] = [
    ("request", CellReader::Count(|one| Some(one.id))),
    ("arrival_s", CellReader::Number(|one| seconds(one.arrival))),
    ("prompt_tokens", CellReader::Count(|one| Some(one.prompt_tokens))),
    ("output_tokens", CellReader::Count(|one| Some(one.output_tokens))),
    ("scheduled_s", CellReader::Number(|one| seconds(one.scheduled))),
    ("first_token_s", CellReader::Number(|one| seconds(one.first_token))),
    ("last_token_s", CellReader::Number(|one| seconds(one.last_token))),
    ("ttft_s", CellReader::Number(|one| seconds(one.ttft()))),
    ("tpot_s", CellReader::Number(|one| seconds(one.tpot()?))),
    ("e2el_s", CellReader::Number(|one| seconds(one.e2el()))),
    ("cached_tokens", CellReader::Count(|one| Some(one.cached_tokens))),
    ("fetched_tokens", CellReader::Count(|one| Some(one.fetched_tokens))),
    ("preemptions", CellReader::Count(|one| Some(u64::from(one.preemptions)))),
];

/// Writes a row for each request, in the order of their numbers. Engines report requests in the
/// order of their ends, so all of them are in memory before the first is written.
pub(crate) fn write_requests(path: &Path, served: &mut [ServedRequest]) -> Result<()> {
    served.sort_by_key(|one| one.id);
    write_table(path, &REQUESTS, served)
}

/// A stretch of time, and what its columns are divided by.
struct BucketRow {
    start: f64,
    every: f64,
    replicas: f64,
    bucket: SeriesBucket,
}

/// Six digits behind the point: a step's share in a stretch is no rounder than that.
fn rounded(value: f64) -> Option<f64> {
    const DIGITS: f64 = 1_000_000.0;
    Some((value * DIGITS).round() / DIGITS)
}

/// `reports/metrics.md` defines the columns.
const SERIES: [TableColumn<BucketRow>; 8] = [
    ("start_s", CellReader::Number(|row| Some(row.start))),
    ("steps", CellReader::Number(|row| rounded(row.bucket.steps))),
    ("utilization", CellReader::Number(|row| rounded(row.bucket.busy / row.every / row.replicas))),
    ("mean_running", CellReader::Number(|row| rounded(row.bucket.running / row.every))),
    ("mean_waiting", CellReader::Number(|row| rounded(row.bucket.waiting / row.every))),
    ("prompt_tokens_per_s", CellReader::Number(|row| rounded(row.bucket.prompt_tokens / row.every))),
    ("output_tokens_per_s", CellReader::Number(|row| rounded(row.bucket.output_tokens / row.every))),
    ("least_free_blocks", CellReader::Count(|row| row.bucket.least_free_blocks)),
];

/// Writes a row for each stretch of time, in order; as OpenMetrics text where the name ends in
/// `.prom`.
pub(crate) fn write_series(path: &Path, series: &Series, replicas: u64) -> Result<()> {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("prom")) {
        return write_atomically(path, open_metrics(series)).or_failed();
    }
    let every = series.bucket_time().to_seconds().get();
    let row = |(index, &bucket): (usize, &SeriesBucket)| BucketRow {
        start: index as f64 * every,
        every,
        replicas: replicas as f64,
        bucket,
    };
    let rows: Vec<_> = series.buckets().iter().enumerate().map(row).collect();
    write_table(path, &SERIES, &rows)
}
