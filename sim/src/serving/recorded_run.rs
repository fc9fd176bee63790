//! A recorded run of a real engine: its settings, and when each request came and was answered.

use super::batch::StepPrices;
use super::engine::{Engine, Host, Policy, Reserve};
use super::layer_times::TableError;
use super::picos::Picos;
use super::replica::Replica;
use super::request::{Request, Served};
use super::source::{End, serve};
use super::watch::Watch;
use hwprofiles::{FileError, Missing, Seconds, yaml};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What vLLM's host does for each sequence of a step while the GPU waits: what is missing to the two recorded runs of
/// version 0.19, of 35 sequences at a time on one machine and 120 on the other.
const HOST: Host = Host { per_step: Picos(0), per_sequence: Picos(7_500_000) };

/// vLLM's default.
const BLOCK_SIZE: u64 = 16;

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRun {
    /// The model, as Hugging Face names it.
    pub model: String,
    /// GPUs that shared each layer.
    pub tensor_parallel: u64,
    /// The engine's settings.
    pub engine: Engine,
    /// What became of each request, in the order of arrival.
    pub served: Vec<Served>,
}

/// Its settings as they were written down.
#[derive(Debug, Deserialize)]
struct Settings {
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

/// A line of its table of requests, times in seconds from the first arrival.
#[derive(Debug, Deserialize)]
struct Row {
    arrival_s: f64,
    prompt_tokens: u64,
    output_tokens: u64,
    scheduled_s: f64,
    first_token_s: f64,
    last_token_s: f64,
}

impl RecordedRun {
    /// The run of `engine.yaml` and `requests.csv`. Where the number of blocks was not written down, there were enough.
    ///
    /// # Errors
    /// Names the key or the line that is wrong.
    pub fn read(engine: &str, file: &str, requests: &str) -> Result<Self, RecordError> {
        let settings: Settings = yaml::read(engine, file)?;
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
        let tokens = |served: &Served| served.prompt_tokens + served.output_tokens;
        let most = served.iter().map(tokens).max().unwrap_or(1);
        let engine = Engine {
            max_num_seqs: settings.max_num_seqs,
            max_num_batched_tokens: settings.max_num_batched_tokens,
            max_model_len: settings.max_model_len.unwrap_or(most),
            num_blocks: settings
                .num_gpu_blocks
                .unwrap_or_else(|| settings.max_num_seqs.saturating_mul(most.div_ceil(block_size))),
            block_size,
            chunked_prefill: true,
            prefix_caching: settings.enable_prefix_caching.unwrap_or(true),
            prefix_tokens: block_size,
            prefill_first: false,
            reserve: Reserve::Prompt,
            policy: Policy::Fcfs,
            swap: None,
            second_level: None,
            host: HOST,
        };
        Ok(Self { model: settings.model, tensor_parallel: settings.tensor_parallel_size, engine, served })
    }

    /// Its requests, to be served again.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.served.iter().map(|served| Request {
            id: served.id,
            arrival: served.arrival,
            prompt_tokens: served.prompt_tokens,
            output_tokens: served.output_tokens,
            prefix: Vec::new(),
        })
    }

    /// Serves its requests again, in steps of such prices: for each, what was recorded and what came of it now. Those that its
    /// engine refuses are left out.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn replay(&self, prices: impl StepPrices) -> Result<Vec<[Served; 2]>, Missing> {
        let mut again = Again(BTreeMap::new());
        serve(&mut self.requests(), &mut Replica::new(self.engine.clone(), prices), &mut again)?;
        let pair = |recorded: &Served| Some([*recorded, *again.0.get(&recorded.id)?]);
        Ok(self.served.iter().filter_map(pair).collect())
    }
}

/// What was answered, by number.
struct Again(BTreeMap<u64, Served>);

impl Watch for Again {
    fn end(&mut self, end: &End) {
        if let End::Served(served) = end {
            self.0.insert(served.id, *served);
        }
    }
}

/// A recorded run that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The engine's settings.
    #[error(transparent)]
    Engine(#[from] FileError),
    /// The requests.
    #[error(transparent)]
    Requests(#[from] TableError),
}

fn read_requests(text: &str) -> Result<Vec<Served>, TableError> {
    let wrong = |line: usize, reason: String| TableError {
        table: "requests",
        reason: format!("row {line}: {reason}"),
    };
    let mut served = Vec::new();
    for (index, row) in csv::Reader::from_reader(text.as_bytes()).deserialize::<Row>().enumerate() {
        let line = index + 2;
        let row = row.map_err(|error| wrong(line, error.to_string()))?;
        let times = [row.arrival_s, row.first_token_s, row.last_token_s];
        if !times.is_sorted() || times.iter().any(|time| !(0.0..=1e7).contains(time)) {
            let reason = "a request comes, then has its first and its last token, within 1e7 s".to_owned();
            return Err(wrong(line, reason));
        }
        if row.prompt_tokens == 0 || row.output_tokens == 0 {
            return Err(wrong(line, "tokens go in and come out".to_owned()));
        }
        let at = |seconds: f64| Picos::rounding_up(Seconds::new(seconds));
        served.push(Served {
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
