//! A recorded run of a real engine, served again by the simulator.

use super::engine_sizing::{EngineSizing, SizedEngine};
use super::placement::ServingPlacement;
use super::step_difference::{StepDifference, StepSample};
use super::tables::seconds;
use crate::error::{Error, OrError, Result};
use crate::pipeline::{PreparedScenario, model, parse_scenario, read_scenario};
use crate::table::{CellReader, TableColumn, write_table};
use hwprofiles::statistics::{mean, percentile, relative_error};
use planner::{CostModel, PhasePrograms};
use scenarios::Setting;
use serde::Serialize;
use serde_json::{Value, json};
use sim::SimTime;
use sim::serving::{LayerTables, LayerTimes, PlanPrices, RecordedRun, ServedRequest, TableText};
use std::path::{Path, PathBuf};

/// What to replay, and what a step costs.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// The folder of the recording: `engine.yaml`, `requests.csv` and, where layer times price the
    /// steps, `dense_tpN.csv`, `per_sequence_tpN.csv`, `attention_tpN.csv`, `moe_tpN.csv` and
    /// `all_reduce_tpN.csv` for N GPUs that share a layer.
    pub folder: PathBuf,
    /// The machine whose profile prices the steps, in place of the layer times.
    pub machine: Option<String>,
    /// A scenario with that machine, and with model and formats where the recording's do not do.
    pub scenario: Option<PathBuf>,
    /// Keys of the scenario that are set.
    pub settings: Vec<Setting>,
}

/// A recorded run beside its replay.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The model, the engine and the settings.
    pub heading: String,
    /// What priced the steps.
    pub prices: String,
    /// Each answered request as recorded and as simulated.
    pub requests: Vec<[ServedRequest; 2]>,
    /// Requests that the simulated engine rejects.
    pub rejected: usize,
    /// TTFT, TPOT and E2EL.
    pub errors: Vec<LatencyErrors>,
    /// Where the profile and the layer times differ, where there are both.
    pub differences: Vec<StepDifference>,
}

/// A latency as recorded and as simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyErrors {
    /// TTFT, TPOT or E2EL.
    pub latency: &'static str,
    /// Seconds, as recorded.
    pub recorded: LatencySummary,
    /// Seconds, as simulated.
    pub replayed: LatencySummary,
    /// ours ÷ theirs − 1, of each number of the two above.
    pub error: LatencySummary,
    /// |ours ÷ theirs − 1| over the requests.
    pub request_error: LatencySummary,
}

/// A mean and percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencySummary {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// Serves the requests of a recorded run again.
///
/// # Errors
/// Names the file, the line and the column that is wrong; or the engine does not fit on the
/// machine.
pub fn replay(options: &ReplayOptions) -> Result<Replay> {
    let files = RecordedFiles(&options.folder);
    let [engine, requests] = [files.text("engine.yaml")?, files.text("requests.csv")?];
    let mut run = RecordedRun::read(engine.table(), requests.table()).or_input()?;
    let from_profile = options.machine.is_some() || options.scenario.is_some();
    if !from_profile {
        let times = files.layer_times(&run, &run.model)?;
        let requests = run.replay(|| times.clone()).or_input()?;
        return Ok(Replay::new(&run, "the layer times of the folder".to_owned(), requests, Vec::new()));
    }
    if run.ranks.experts > 1 {
        return Err(Error::input(format!(
            "{}: {} engines share their experts, which a profile has no price for: leave --machine out to use \
             the folder's layer times",
            engine.file, run.ranks.experts
        )));
    }
    let scenario = profile_scenario(options, &run)?;
    let placed = ServingPlacement::new(&scenario)?;
    let cost_model =
        CostModel { machine: &placed.machine, model: scenario.model(), formats: &placed.formats };
    if !run.blocks_known {
        match EngineSizing::new(&scenario, placed.micro_batch).engine(cost_model, &placed.placement)? {
            SizedEngine::Fits(sized, _) => run.engine.num_blocks = sized.num_blocks,
            SizedEngine::NoRoom(full) => return Err(Error::infeasible(full)),
        }
    }
    let programs = PhasePrograms::lower(&placed.machine, scenario.model(), &placed.placement).or_input()?;
    let prices = || PlanPrices::new(cost_model, &programs);
    let requests = run.replay(prices).or_input()?;
    let differences = match files.has_layer_times(&run) {
        true => {
            let times = files.layer_times(&run, &run.model)?;
            let samples = StepSample::typical(&run, requests.iter().map(|pair| &pair[0]));
            let difference = |sample: &StepSample| StepDifference::new(sample, &times, &prices());
            samples.iter().map(difference).collect::<Result<_, _>>().or_input()?
        }
        false => Vec::new(),
    };
    let priced =
        format!("the profile of {} alone, {}, {}", placed.machine.name, placed.chosen, placed.formats);
    Ok(Replay::new(&run, priced, requests, differences))
}

/// The scenario that names the machine.
fn profile_scenario(options: &ReplayOptions, run: &RecordedRun) -> Result<PreparedScenario> {
    let scenario = match &options.scenario {
        Some(path) => {
            let machine = options.machine.as_ref().map(|name| format!("machine={}", json!(name)).parse());
            let machine = machine.transpose().or_input()?;
            let settings: Vec<_> = machine.into_iter().chain(options.settings.iter().cloned()).collect();
            read_scenario(path, &settings)?
        }
        None => {
            let load = |of: fn(&ServedRequest) -> u64| {
                let sum: u64 = run.served.iter().map(of).sum();
                (sum / run.served.len() as u64).max(1)
            };
            let mut document = json!({
                "machine": options.machine,
                "model": run.model,
                "engine": {"name": "vllm", "max_num_seqs": run.engine.max_num_seqs,
                    "max_num_batched_tokens": run.engine.max_num_batched_tokens},
                "workload": {
                    "batch": run.engine.max_num_seqs,
                    "prompt_tokens": load(|served| served.prompt_tokens),
                    "output_tokens": load(|served| served.output_tokens),
                },
            });
            if run.ranks.tensor > 1 {
                document["tensor_parallel"] = json!(run.ranks.tensor);
            }
            parse_scenario(&document.to_string())?
        }
    };
    PreparedScenario::new(&scenario)
}

/// The files of a recording.
struct RecordedFiles<'p>(&'p Path);

/// A file that was read.
struct RecordedText {
    file: String,
    text: String,
}

impl RecordedText {
    fn table(&self) -> TableText<'_> {
        TableText { file: &self.file, text: &self.text }
    }
}

impl RecordedFiles<'_> {
    fn text(&self, name: &str) -> Result<RecordedText> {
        let path = self.0.join(name);
        let file = path.display().to_string();
        match hwprofiles::read_text(&path) {
            Ok(text) => Ok(RecordedText { file, text }),
            Err(error) => Err(Error::input(format!("{file}: cannot be read: {error}"))),
        }
    }

    /// A table that only some recordings have; one without content counts as missing.
    fn optional(&self, name: &str) -> Result<Option<RecordedText>> {
        match self.0.join(name).is_file() {
            true => Ok(Some(self.text(name)?).filter(|table| !table.text.trim().is_empty())),
            false => Ok(None),
        }
    }

    fn has_layer_times(&self, run: &RecordedRun) -> bool {
        self.0.join(format!("dense_tp{}.csv", run.ranks.tensor)).is_file()
    }

    fn layer_times(&self, run: &RecordedRun, named: &str) -> Result<LayerTimes> {
        let ranks = run.ranks.tensor;
        let needed = |table: &str| self.text(&format!("{table}_tp{ranks}.csv"));
        let optional = |table: &str| self.optional(&format!("{table}_tp{ranks}.csv"));
        let [dense, per_sequence, attention] =
            [needed("dense")?, needed("per_sequence")?, needed("attention")?];
        let (experts, all_reduce) = (optional("moe")?, optional("all_reduce")?);
        let tables = LayerTables {
            dense: dense.table(),
            per_sequence: per_sequence.table(),
            attention: attention.table(),
            experts: experts.as_ref().map(RecordedText::table),
            all_reduce: all_reduce.as_ref().map(RecordedText::table),
        };
        LayerTimes::read(&tables, &model(named)?, run.ranks).or_input()
    }
}

/// A latency of a request, where it has one.
type LatencyOf = fn(&ServedRequest) -> Option<SimTime>;

impl Replay {
    fn new(
        run: &RecordedRun,
        prices: String,
        requests: Vec<[ServedRequest; 2]>,
        differences: Vec<StepDifference>,
    ) -> Self {
        let latencies: [(&str, LatencyOf); 3] = [
            ("TTFT", |served| Some(served.ttft())),
            ("TPOT", ServedRequest::tpot),
            ("E2EL", |served| Some(served.e2el())),
        ];
        let errors = latencies.iter().filter_map(|(name, of)| LatencyErrors::new(name, *of, &requests));
        let gpus = match run.ranks.tensor * run.engines {
            1 => String::new(),
            gpus => format!(" on {gpus} GPUs"),
        };
        Self {
            heading: format!(
                "{}{gpus}, {} requests: at most {} sequences and {} tokens at once, {} KV blocks of {}",
                run.model,
                run.served.len(),
                run.engine.max_num_seqs,
                run.engine.max_num_batched_tokens,
                run.engine.num_blocks,
                run.engine.block_size,
            ),
            prices,
            rejected: run.served.len() - requests.len(),
            errors: errors.collect(),
            requests,
            differences,
        }
    }

    /// Everything but the requests as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "run": self.heading, "prices": self.prices, "requests": self.requests.len(),
            "rejected": self.rejected, "errors": self.errors, "differences": self.differences,
        })
    }

    /// Writes a row for each request; Parquet where the name ends so.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_requests(&self, path: &Path) -> Result {
        write_table(path, &COLUMNS, &self.requests)
    }
}

impl LatencyErrors {
    /// `None` where no request has this latency.
    fn new(
        latency: &'static str,
        of: fn(&ServedRequest) -> Option<SimTime>,
        requests: &[[ServedRequest; 2]],
    ) -> Option<Self> {
        let seconds = |served: &ServedRequest| of(served).map(|time| time.to_seconds().get());
        let pairs = requests.iter().filter_map(|[theirs, ours]| Some((seconds(theirs)?, seconds(ours)?)));
        let (recorded, replayed): (Vec<_>, Vec<_>) = pairs.unzip();
        let each = recorded.iter().zip(&replayed).filter_map(|(theirs, ours)| relative_error(*ours, *theirs));
        let each: Vec<_> = each.map(f64::abs).collect();
        let [recorded, replayed] = [LatencySummary::new(&recorded)?, LatencySummary::new(&replayed)?];
        let error =
            |of: fn(&LatencySummary) -> f64| relative_error(of(&replayed), of(&recorded)).unwrap_or(0.0);
        let error = LatencySummary {
            mean: error(|s| s.mean),
            p50: error(|s| s.p50),
            p90: error(|s| s.p90),
            p99: error(|s| s.p99),
        };
        Some(Self { latency, recorded, replayed, error, request_error: LatencySummary::new(&each)? })
    }
}

impl LatencySummary {
    fn new(values: &[f64]) -> Option<Self> {
        let at = |percent| percentile(values, percent);
        Some(Self { mean: mean(values)?, p50: at(50.0)?, p90: at(90.0)?, p99: at(99.0)? })
    }
}

/// A request as recorded and as simulated.
type RequestPair = [ServedRequest; 2];

fn error_of(pair: &RequestPair, of: fn(&ServedRequest) -> Option<SimTime>) -> Option<f64> {
    let [theirs, ours] = pair;
    relative_error(of(ours)?.to_seconds().get(), of(theirs)?.to_seconds().get())
}

/// Times are in seconds; errors are ours ÷ theirs − 1.
const COLUMNS: [TableColumn<RequestPair>; 14] = [
    ("request", CellReader::Count(|pair| Some(pair[0].id))),
    ("arrival_s", CellReader::Number(|pair| seconds(pair[0].arrival))),
    ("prompt_tokens", CellReader::Count(|pair| Some(pair[0].prompt_tokens))),
    ("output_tokens", CellReader::Count(|pair| Some(pair[0].output_tokens))),
    ("recorded_ttft_s", CellReader::Number(|pair| seconds(pair[0].ttft()))),
    ("replayed_ttft_s", CellReader::Number(|pair| seconds(pair[1].ttft()))),
    ("recorded_tpot_s", CellReader::Number(|pair| seconds(pair[0].tpot()?))),
    ("replayed_tpot_s", CellReader::Number(|pair| seconds(pair[1].tpot()?))),
    ("recorded_e2el_s", CellReader::Number(|pair| seconds(pair[0].e2el()))),
    ("replayed_e2el_s", CellReader::Number(|pair| seconds(pair[1].e2el()))),
    ("ttft_error", CellReader::Number(|pair| error_of(pair, |served| Some(served.ttft())))),
    ("tpot_error", CellReader::Number(|pair| error_of(pair, ServedRequest::tpot))),
    ("e2el_error", CellReader::Number(|pair| error_of(pair, |served| Some(served.e2el())))),
    ("preemptions", CellReader::Count(|pair| Some(u64::from(pair[1].preemptions)))),
];
