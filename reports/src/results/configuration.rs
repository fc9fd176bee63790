//! One configuration of a validation: the request, its prediction and its measurements.

use crate::numbers::pair::Pair;
use crate::numbers::serde_forms::{in_bytes, in_seconds, line_by_line, maybe_in_bytes, maybe_in_seconds};
use crate::numbers::statistics::{median, spread};
use crate::results::comparison::{Comparison, JoinError};
use crate::results::error::ReportError;
use crate::results::placement_map::PlacementMap;
use hwprofiles::{Bytes, Machine, MemoryId, Seconds};
use planner::{MemoryUsage, Trace};
use serde::{Deserialize, Serialize};

/// The shape of a configuration's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// A short name, unique in its validation: `b4-p512-planned`.
    pub name: String,
    /// The kind of placement: `all-cpu`, `mixed`, `streamed`, `planned`, …; plots give each kind a
    /// marker.
    pub placement: String,
    /// The number of sequences.
    pub batch: u64,
    /// Prompt tokens of each sequence.
    pub prompt_tokens: u64,
    /// Output tokens of each sequence.
    pub output_tokens: u64,
}

/// TTFT and TPOT of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTimes {
    /// Time to first token.
    #[serde(rename = "ttft_s", with = "in_seconds")]
    pub ttft: Seconds,
    /// Time per output token; absent where only one token was generated.
    #[serde(rename = "tpot_s", with = "maybe_in_seconds")]
    pub tpot: Option<Seconds>,
}

impl RunTimes {
    /// Takes the times of a trace.
    pub fn from_trace(trace: &Trace) -> Self {
        let tpot = trace.tpot_ns().map(|nanos| Seconds::new(nanos / 1e9));
        Self { ttft: Seconds::from_nanos(trace.ttft_ns()), tpot }
    }
}

/// The use of one memory, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUse {
    /// Its name.
    pub memory: String,
    /// Its capacity.
    #[serde(rename = "capacity_bytes", with = "in_bytes")]
    pub capacity: Bytes,
    /// Planned bytes of resident matrices, norms, biases and tables.
    #[serde(rename = "weights_bytes", with = "in_bytes")]
    pub weights: Bytes,
    /// Planned bytes of KV caches at the end of the context.
    #[serde(rename = "kv_bytes", with = "in_bytes")]
    pub kv: Bytes,
    /// Planned bytes of activation buffers.
    #[serde(rename = "activations_bytes", with = "in_bytes")]
    pub activations: Bytes,
    /// Planned bytes of staging slots.
    #[serde(rename = "staging_bytes", with = "in_bytes")]
    pub staging: Bytes,
    /// The largest amount that the executor had allocated at once; absent where it was not counted.
    #[serde(rename = "allocated_bytes", with = "maybe_in_bytes")]
    pub allocated: Option<Bytes>,
}

impl MemoryUse {
    /// The sum of all planned bytes.
    pub fn planned(&self) -> Bytes {
        self.weights + self.kv + self.activations + self.staging
    }

    /// The use of each of `machine`'s memories, by memory index. `allocated` gives the executor's
    /// largest allocation in a memory, where it was counted.
    pub fn from_usage(
        machine: &Machine,
        usage: &[MemoryUsage],
        allocated: impl Fn(MemoryId) -> Option<Bytes>,
    ) -> Vec<Self> {
        let uses = machine.memories.iter().zip(usage).enumerate().map(|(index, (memory, usage))| Self {
            memory: memory.name.clone(),
            capacity: memory.capacity.value,
            weights: usage.weights,
            kv: usage.kv,
            activations: usage.activations,
            staging: usage.staging,
            allocated: allocated(MemoryId(index)),
        });
        uses.collect()
    }
}

/// What came of the tokens that a draft proposed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftOutcome {
    /// Tokens that the model verified, in all repeats.
    pub proposed: u64,
    /// Those that it accepted.
    pub accepted: u64,
    /// The plan's probability that a proposed token is accepted.
    pub planned: f64,
}

/// A request with its prediction and its measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The shape of the request.
    pub label: Label,
    /// The predicted times.
    pub predicted: RunTimes,
    /// The measured times of each repeat, in the order of the runs.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub runs: Vec<RunTimes>,
    /// The prediction joined with the repeat of median total duration. With a draft it is the
    /// prediction of the measured steps.
    pub comparison: Comparison,
    /// What came of the draft's tokens, where the plan has a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftOutcome>,
    /// The planned use of each memory.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub memory: Vec<MemoryUse>,
    /// The placement of every sublayer.
    pub placement: PlacementMap,
}

impl Configuration {
    /// Joins a predicted trace with the traces of one or more measured repeats.
    pub fn from_traces(
        label: Label,
        predicted: &Trace,
        measured: &[Trace],
        memory: Vec<MemoryUse>,
        placement: PlacementMap,
    ) -> Result<Self, ReportError> {
        let refused = |source| ReportError::Configuration { name: label.name.clone(), source };
        // Runs without tasks count, where there are any, and one with tasks is shown.
        let (listed, bare): (Vec<_>, Vec<_>) = measured.iter().partition(|trace| !trace.events.is_empty());
        let shown = if listed.is_empty() { &bare } else { &listed };
        // Every one must match the prediction, though only one is shown.
        let comparisons: Result<Vec<_>, _> =
            shown.iter().map(|trace| Comparison::join(predicted, trace)).collect();
        let mut ordered: Vec<_> = comparisons.map_err(refused)?.into_iter().zip(shown).collect();
        ordered.sort_by_key(|(_, trace)| trace.steps.last().map(|step| step.end_ns));
        let timed = if bare.is_empty() { listed.iter() } else { bare.iter() };
        let runs = timed.map(|trace| RunTimes::from_trace(trace)).collect();
        let middle = ordered.len().saturating_sub(1) / 2;
        let shown = ordered.into_iter().nth(middle).map(|(comparison, _)| comparison);
        let comparison = shown.ok_or_else(|| refused(JoinError::NothingMeasured))?;
        let (predicted, draft) = (RunTimes::from_trace(predicted), None);
        Ok(Self { predicted, runs, comparison, draft, memory, placement, label })
    }

    /// The same configuration with a draft: `promised` are the times that the plan predicts, with
    /// its own acceptance.
    pub fn with_draft(self, draft: DraftOutcome, promised: &Trace) -> Self {
        Self { draft: Some(draft), predicted: RunTimes::from_trace(promised), ..self }
    }

    /// TTFT: the prediction, and the median of the repeats.
    pub fn ttft(&self) -> Pair {
        let measured = median(&self.ttft_runs()).map_or(Seconds::ZERO, Seconds::new);
        Pair { predicted: self.predicted.ttft, measured }
    }

    /// TPOT: the prediction, and the median of the repeats. `None` where only one token was
    /// generated.
    pub fn tpot(&self) -> Option<Pair> {
        let measured = median(&self.tpot_runs()).map(Seconds::new)?;
        Some(Pair { predicted: self.predicted.tpot?, measured })
    }

    /// Spread of the measured TTFT: (third quartile − first quartile) ÷ median.
    pub fn ttft_spread(&self) -> Option<f64> {
        spread(&self.ttft_runs())
    }

    /// Spread of the measured TPOT.
    pub fn tpot_spread(&self) -> Option<f64> {
        spread(&self.tpot_runs())
    }

    fn ttft_runs(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.ttft.get()).collect()
    }

    fn tpot_runs(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.tpot).map(Seconds::get).collect()
    }
}
