//! A time series: sums over equal buckets of time.

use crate::clock::SimTime;
use crate::serving::engine::observer::{EngineObserver, ObservedSteps};

/// The most buckets. With more, all buckets become twice as long instead.
const MOST_BUCKETS: usize = 1 << 16;

/// The work of engines in one bucket of time. A step over several buckets counts in each by its
/// share of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SeriesBucket {
    /// Steps.
    pub steps: f64,
    /// Seconds of steps, summed over all engines.
    pub busy: f64,
    /// Seconds in steps, summed over all sequences.
    pub running: f64,
    /// Seconds of waiting while steps ran, summed over all sequences.
    pub waiting: f64,
    /// Tokens of prompts that entered.
    pub prompt_tokens: f64,
    /// Tokens that were sampled.
    pub output_tokens: f64,
    /// The fewest free KV blocks of an engine at the end of a step. `None` without a step.
    pub least_free_blocks: Option<u64>,
}

impl SeriesBucket {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.busy += other.busy;
        self.running += other.running;
        self.waiting += other.waiting;
        self.prompt_tokens += other.prompt_tokens;
        self.output_tokens += other.output_tokens;
        let least = [self.least_free_blocks, other.least_free_blocks];
        self.least_free_blocks = least.into_iter().flatten().min();
    }

    fn scaled(&self, by: f64) -> Self {
        Self {
            steps: self.steps * by,
            busy: self.busy * by,
            running: self.running * by,
            waiting: self.waiting * by,
            prompt_tokens: self.prompt_tokens * by,
            output_tokens: self.output_tokens * by,
            least_free_blocks: self.least_free_blocks,
        }
    }
}

/// The buckets from time zero on.
#[derive(Debug, Clone)]
pub struct Series {
    bucket_time: SimTime,
    buckets: Vec<SeriesBucket>,
}

impl Series {
    /// An empty series with buckets of `bucket_time`, at least a picosecond.
    pub fn new(bucket_time: SimTime) -> Self {
        Self { bucket_time: bucket_time.max(SimTime::from_picos(1)), buckets: Vec::new() }
    }

    /// The length of a bucket: the given one, doubled until there are few enough buckets.
    pub fn bucket_time(&self) -> SimTime {
        self.bucket_time
    }

    /// The buckets in order.
    pub fn buckets(&self) -> &[SeriesBucket] {
        &self.buckets
    }

    /// Adds the series of another engine, which must have begun with buckets of the same length.
    pub fn join(&mut self, mut other: Self) {
        while other.bucket_time < self.bucket_time {
            other.coarsen();
        }
        while self.bucket_time < other.bucket_time {
            self.coarsen();
        }
        debug_assert_eq!(self.bucket_time, other.bucket_time, "both began with the same buckets");
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), SeriesBucket::default());
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(ours, theirs)| ours.add(theirs));
    }

    fn coarsen(&mut self) {
        self.bucket_time = self.bucket_time.times(2);
        for index in 0..self.buckets.len().div_ceil(2) {
            let mut both = self.buckets[2 * index];
            if let Some(second) = self.buckets.get(2 * index + 1) {
                both.add(second);
            }
            self.buckets[index] = both;
        }
        self.buckets.truncate(self.buckets.len().div_ceil(2));
    }
}

impl EngineObserver for Series {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        let (begin, end) = (steps.begin.picos(), steps.end.picos().max(steps.begin.picos() + 1));
        while (end - 1) / self.bucket_time.picos() >= MOST_BUCKETS as u64 {
            self.coarsen();
        }
        let bucket = self.bucket_time.picos();
        let last = ((end - 1) / bucket) as usize;
        self.buckets.resize(self.buckets.len().max(last + 1), SeriesBucket::default());
        let (batch, count) = (&steps.batch, steps.count as f64);
        let sequences = batch.decodes + batch.chunks.len() as u64;
        let entered: u64 = batch.chunks.iter().map(|chunk| chunk.new).sum();
        let busy = (steps.end - steps.begin).to_seconds().get();
        let all = SeriesBucket {
            steps: count,
            busy,
            running: busy * sequences as f64,
            waiting: busy * steps.waiting as f64,
            prompt_tokens: count * entered as f64,
            output_tokens: count * batch.sampled as f64,
            least_free_blocks: Some(steps.free_blocks),
        };
        for index in (begin / bucket) as usize..=last {
            let from = (index as u64 * bucket).max(begin);
            let to = (index as u64 + 1).saturating_mul(bucket).min(end);
            self.buckets[index].add(&all.scaled((to - from) as f64 / (end - begin) as f64));
        }
    }
}
