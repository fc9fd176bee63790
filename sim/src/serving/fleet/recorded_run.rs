//! A recorded run of a real engine: its settings, and the arrival and answer times of each request.

use crate::clock::{SimTime, Tick};
use crate::serving::engine::observer::{EngineObserver, RequestOutcome};
use crate::serving::engine::request::{Request, ServedRequest};
use crate::serving::engine::settings::{AdmissionPolicy, HostTimes, ServingEngine};
use crate::serving::engine::{FrontEnd, Reserve, StateSnapshots};
use crate::serving::fleet::serve::serve;
use crate::serving::kv::sequence_blocks::SequenceBlocks;
use crate::serving::prices::batch::StepPrices;
use crate::serving::prices::layer_times::CsvTableError;
use crate::serving::schedule::replica::Replica;
use hwprofiles::{FileError, MissingRate, Seconds, yaml};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The time that vLLM's host takes for each sequence of a step while the GPU waits. It is fitted to
/// the two recorded runs of version 0.19, with 35 sequences at a time on one machine and 120 on the
/// other.
const HOST: HostTimes = HostTimes { per_step: SimTime::ZERO, per_sequence: SimTime::from_picos(7_500_000) };

/// vLLM's default block size, in tokens.
const BLOCK_SIZE: u64 = 16;

/// A recorded run.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRun {
    /// The model, as Hugging Face names it.
    pub model: String,
    /// GPUs that shared each layer.
    pub tensor_parallel: u64,
    /// The engine's settings.
    pub engine: ServingEngine,
    /// The answered requests, in the order of arrival.
    pub served: Vec<ServedRequest>,
}

/// The settings in `engine.yaml`.
#[derive(Debug, Deserialize)]
struct EngineFile {
    model: String,
    #[serde(default = "one")]
    tensor_parallel_size: u64,
    max_num_seqs: u64,
    max_num_batched_tokens: u64,
    max_model_len: Option<u64>,
    num_gpu_blocks: Option<u64>,
    block_size: Option<u64>,
    enable_prefix_caching: Option<bool>,
}

fn one() -> u64 {
    1
}

/// A row of `requests.csv`. Times are in seconds from the first arrival.
#[derive(Debug, Deserialize)]
struct RequestRow {
    arrival_s: f64,
    prompt_tokens: u64,
    output_tokens: u64,
    scheduled_s: f64,
    first_token_s: f64,
    last_token_s: f64,
}

impl RecordedRun {
    /// The run in the texts of `engine.yaml` and `requests.csv`. Without a number of blocks, there
    /// are enough for all.
    ///
    /// # Errors
    /// Names the wrong key or row.
    pub fn read(engine: &str, file: &str, requests: &str) -> Result<Self, RecordedRunError> {
        let settings: EngineFile = yaml::read(engine, file)?;
        let refuse = |key: &str, why: &str| Err(yaml::refuse(engine, file, &[key], why.to_owned()).into());
        if settings.max_num_seqs == 0 {
            return refuse("max_num_seqs", "is 0: one sequence at least must run");
        }
        if settings.max_num_batched_tokens < settings.max_num_seqs {
            return refuse(
                "max_num_batched_tokens",
                "is less than max_num_seqs: each sequence needs a token",
            );
        }
        let block_size = settings.block_size.unwrap_or(BLOCK_SIZE);
        if !(1..=4096).contains(&block_size) {
            return refuse("block_size", "is not from 1 to 4096");
        }
        let served = read_requests(requests)?;
        let tokens = |served: &ServedRequest| served.prompt_tokens + served.output_tokens;
        let most = served.iter().map(tokens).max().unwrap_or(1);
        let engine = ServingEngine {
            max_num_seqs: settings.max_num_seqs,
            max_num_batched_tokens: settings.max_num_batched_tokens,
            max_model_len: settings.max_model_len.unwrap_or(most),
            num_blocks: settings
                .num_gpu_blocks
                .unwrap_or_else(|| settings.max_num_seqs.saturating_mul(most.div_ceil(block_size))),
            block_size,
            sequence: SequenceBlocks::default(),
            snapshots: StateSnapshots::default(),
            chunked_prefill: true,
            prefix_caching: settings.enable_prefix_caching.unwrap_or(true),
            prefix_tokens: block_size,
            prefill_first: false,
            reserve: Reserve::Prompt,
            policy: AdmissionPolicy::Fcfs,
            swap: None,
            second_level: None,
            host: HOST,
            front_end: FrontEnd::default(),
        };
        Ok(Self { model: settings.model, tensor_parallel: settings.tensor_parallel_size, engine, served })
    }

    /// Its requests, for serving them again.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.served.iter().map(|served| Request {
            id: served.id,
            arrival: served.arrival,
            prompt_tokens: served.prompt_tokens,
            output_tokens: served.output_tokens,
            prefix: Vec::new(),
        })
    }

    /// Serves its requests again, with these step prices. Returns each request as recorded and as
    /// simulated, without those that the engine rejects.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn replay(&self, prices: impl StepPrices) -> Result<Vec<[ServedRequest; 2]>, MissingRate> {
        let mut replayed = ReplayedRequests(BTreeMap::new());
        serve(&mut self.requests(), &mut Replica::new(self.engine.clone(), prices), &mut replayed)?;
        let pair = |recorded: &ServedRequest| Some([*recorded, *replayed.0.get(&recorded.id)?]);
        Ok(self.served.iter().filter_map(pair).collect())
    }
}

/// The answered requests by number.
struct ReplayedRequests(BTreeMap<u64, ServedRequest>);

impl EngineObserver for ReplayedRequests {
    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(served) = end {
            self.0.insert(served.id, *served);
        }
    }
}

/// A recorded run that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordedRunError {
    /// The engine's settings.
    #[error(transparent)]
    Settings(#[from] FileError),
    /// The requests.
    #[error(transparent)]
    Requests(#[from] CsvTableError),
}

fn read_requests(text: &str) -> Result<Vec<ServedRequest>, CsvTableError> {
    let wrong = |line: usize, reason: String| CsvTableError {
        table: "requests",
        reason: format!("row {line}: {reason}"),
    };
    let mut served = Vec::new();
    for (index, row) in csv::Reader::from_reader(text.as_bytes()).deserialize::<RequestRow>().enumerate() {
        let line = index + 2;
        let row = row.map_err(|error| wrong(line, error.to_string()))?;
        let times = [row.arrival_s, row.first_token_s, row.last_token_s];
        if !times.is_sorted() || times.iter().any(|time| !(0.0..=1e7).contains(time)) {
            let reason =
                "arrival, first token and last token are not in this order, from 0 to 1e7 s".to_owned();
            return Err(wrong(line, reason));
        }
        if row.prompt_tokens == 0 || row.output_tokens == 0 {
            return Err(wrong(line, "prompt_tokens and output_tokens must be at least 1".to_owned()));
        }
        let at = |seconds: f64| SimTime::rounding_up(Seconds::new(seconds), Tick::Picosecond);
        served.push(ServedRequest {
            id: index as u64,
            arrival: at(row.arrival_s),
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            scheduled: at(row.scheduled_s.max(row.arrival_s)),
            first_token: at(row.first_token_s),
            last_token: at(row.last_token_s),
            cached_tokens: 0,
            fetched_tokens: 0,
            preemptions: 0,
        });
    }
    served.sort_by_key(|served| (served.arrival, served.id));
    Ok(served)
}
