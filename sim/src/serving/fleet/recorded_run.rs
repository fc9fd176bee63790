//! A recorded run of a real engine: its settings, and the arrival and answer times of each request.

use crate::clock::{SimTime, Tick};
use crate::serving::engine::observer::{EngineObserver, RequestOutcome};
use crate::serving::engine::request::{Request, ServedRequest};
use crate::serving::engine::settings::{AdmissionPolicy, EngineSettings, HostTimes};
use crate::serving::engine::{FrontEnd, Reserve, StateSnapshots};
use crate::serving::fleet::router::Router;
use crate::serving::fleet::serve::{ServeError, serve_fleet};
use crate::serving::kv::sequence_blocks::SequenceBlocks;
use crate::serving::prices::batch::StepPrices;
use crate::serving::prices::{LayerRanks, TableText};
use crate::serving::schedule::replica::Replica;
use hwprofiles::{FileError, RowsError, Seconds, TableRows, yaml};
use scenarios::Routing;
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
    /// The GPUs that shared the model.
    pub ranks: LayerRanks,
    /// Engines side by side, each with a part of the requests.
    pub engines: u64,
    /// The settings of each engine.
    pub engine: EngineSettings,
    /// Whether the number of KV blocks was recorded. Otherwise there are enough for all.
    pub blocks_known: bool,
    /// The answered requests, in the order of arrival.
    pub served: Vec<ServedRequest>,
}

/// The settings in `engine.yaml`.
#[derive(Debug, Deserialize)]
struct EngineFile {
    model: String,
    #[serde(default = "one")]
    tensor_parallel_size: u64,
    #[serde(default = "one")]
    data_parallel_size: u64,
    #[serde(default)]
    enable_expert_parallel: bool,
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

/// The most engines, or GPUs of an engine.
const MOST_RANKS: u64 = 1024;

impl RecordedRun {
    /// The run in the texts of `engine.yaml` and `requests.csv`. Without a number of blocks, there
    /// are enough for all.
    ///
    /// # Errors
    /// Names the wrong key or row.
    pub fn read(engine: TableText<'_>, requests: TableText<'_>) -> Result<Self, RecordedRunError> {
        let TableText { file, text: engine } = engine;
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
        for (key, ranks) in [
            ("tensor_parallel_size", settings.tensor_parallel_size),
            ("data_parallel_size", settings.data_parallel_size),
        ] {
            if !(1..=MOST_RANKS).contains(&ranks) {
                return refuse(key, &format!("is not from 1 to {MOST_RANKS}"));
            }
        }
        let block_size = settings.block_size.unwrap_or(BLOCK_SIZE);
        if !(1..=4096).contains(&block_size) {
            return refuse("block_size", "is not from 1 to 4096");
        }
        let served = read_requests(requests)?;
        let tokens = |served: &ServedRequest| served.prompt_tokens + served.output_tokens;
        let most = served.iter().map(tokens).max().unwrap_or(1);
        let engine = EngineSettings {
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
            prefilled: false,
            prefill_first: false,
            reserve: Reserve::Prompt,
            policy: AdmissionPolicy::Fcfs,
            swap: None,
            second_level: None,
            host: HOST,
            front_end: FrontEnd::default(),
        };
        let experts = if settings.enable_expert_parallel { settings.data_parallel_size } else { 1 };
        Ok(Self {
            model: settings.model,
            ranks: LayerRanks { tensor: settings.tensor_parallel_size, experts },
            engines: settings.data_parallel_size,
            blocks_known: settings.num_gpu_blocks.is_some(),
            engine,
            served,
        })
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

    /// Serves its requests again, each engine with step prices of its own; a request goes to the
    /// engine with the fewest unanswered ones. Returns each request as recorded and as simulated,
    /// without those that the engine rejects.
    ///
    /// # Errors
    /// A rate that was not measured, or more time than there is.
    pub fn replay<P: StepPrices>(
        &self,
        prices: impl Fn() -> P,
    ) -> Result<Vec<[ServedRequest; 2]>, ServeError> {
        let mut replicas: Vec<_> =
            (0..self.engines).map(|_| Replica::new(self.engine.clone(), prices())).collect();
        let mut answers: Vec<_> = (0..self.engines).map(|_| ReplayedRequests::default()).collect();
        let mut router = Router::new(Routing::LeastRequests, 0);
        serve_fleet(&mut self.requests(), &mut replicas, &mut router, &mut (), &mut answers)?;
        let replayed: BTreeMap<_, _> = answers.into_iter().flat_map(|answers| answers.0).collect();
        let pair = |recorded: &ServedRequest| Some([*recorded, *replayed.get(&recorded.id)?]);
        Ok(self.served.iter().filter_map(pair).collect())
    }
}

/// The answered requests by number.
#[derive(Default)]
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
    Requests(#[from] RowsError),
}

/// The largest time, in seconds from the first arrival, and the most tokens of a request.
const LONGEST: f64 = 1e7;
const MOST_TOKENS: f64 = (1_u64 << 30) as f64;

fn read_requests(table: TableText<'_>) -> Result<Vec<ServedRequest>, RowsError> {
    let mut rows = TableRows::new(table.text.as_bytes(), table.file)?;
    let names =
        ["arrival_s", "scheduled_s", "first_token_s", "last_token_s", "prompt_tokens", "output_tokens"];
    let columns = rows.columns(names)?;
    let mut served = Vec::new();
    while rows.advance()? {
        let [arrival, scheduled, first, last, prompt, output] = columns;
        let time = |column| rows.number(column, 0.0..=LONGEST);
        let tokens = |column| rows.number(column, 1.0..=MOST_TOKENS).map(|tokens| tokens as u64);
        let at = |seconds: f64| SimTime::rounding_up(Seconds::new(seconds), Tick::Picosecond);
        for (column, before, name) in [(first, arrival, "arrival_s"), (last, first, "first_token_s")] {
            if time(column)? < time(before)? {
                return Err(rows.refuse(column, format!("{} is before {name}", rows.shown(column))));
            }
        }
        served.push(ServedRequest {
            id: served.len() as u64,
            arrival: at(time(arrival)?),
            prompt_tokens: tokens(prompt)?,
            output_tokens: tokens(output)?,
            scheduled: at(time(scheduled)?.max(time(arrival)?)),
            first_token: at(time(first)?),
            last_token: at(time(last)?),
            cached_tokens: 0,
            fetched_tokens: 0,
            preemptions: 0,
        });
    }
    if served.is_empty() {
        return Err(table.refuse("there are no requests below the header: give at least one"));
    }
    served.sort_by_key(|served| (served.arrival, served.id));
    Ok(served)
}
