//! One configuration of a validation: what was asked, what was predicted, what was measured.

use crate::numbers::pair::Pair;
use crate::numbers::serde_forms::{in_bytes, in_seconds, line_by_line, maybe_in_bytes, maybe_in_seconds};
use crate::numbers::statistics::{median, spread};
use crate::results::comparison::{Comparison, JoinError};
use crate::results::error::ReportError;
use crate::results::placement_map::PlacementMap;
use hwprofiles::{Bytes, Machine, MemoryId, Seconds};
use planner::{Trace, Usage};
use serde::{Deserialize, Serialize};

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// A short name, unique in its validation: `b4-p512-planned`.
    pub name: String,
    /// Which kind of placement: `all-cpu`, `mixed`, `streamed`, `planned`, …; plots give each kind a marker.
    pub placement: String,
    /// Sequences.
    pub batch: u64,
    /// Tokens of each prompt.
    pub prompt_tokens: u64,
    /// Tokens generated for each.
    pub output_tokens: u64,
}

/// TTFT and TPOT of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTimes {
    /// Time to first token.
    #[serde(rename = "ttft_s", with = "in_seconds")]
    pub ttft: Seconds,
    /// Time per output token; absent where one token was asked for.
    #[serde(rename = "tpot_s", with = "maybe_in_seconds")]
    pub tpot: Option<Seconds>,
}

impl RunTimes {
    /// The times of a trace.
    pub fn from_trace(trace: &Trace) -> Self {
        let tpot = trace.tpot_ns().map(|nanos| Seconds::new(nanos / 1e9));
        Self { ttft: Seconds::from_nanos(trace.ttft_ns()), tpot }
    }
}

/// Bytes of one memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUse {
    /// Its name.
    pub memory: String,
    /// How much it holds.
    #[serde(rename = "capacity_bytes", with = "in_bytes")]
    pub capacity: Bytes,
    /// Resident matrices, norms, biases and tables, as planned.
    #[serde(rename = "weights_bytes", with = "in_bytes")]
    pub weights: Bytes,
    /// KV caches at the end of the context, as planned.
    #[serde(rename = "kv_bytes", with = "in_bytes")]
    pub kv: Bytes,
    /// Activation buffers, as planned.
    #[serde(rename = "activations_bytes", with = "in_bytes")]
    pub activations: Bytes,
    /// Staging slots, as planned.
    #[serde(rename = "staging_bytes", with = "in_bytes")]
    pub staging: Bytes,
    /// The most that the executor had allocated at once; absent where nobody counted.
    #[serde(rename = "allocated_bytes", with = "maybe_in_bytes")]
    pub allocated: Option<Bytes>,
}

impl MemoryUse {
    /// All that the plan takes.
    pub fn planned(&self) -> Bytes {
        self.weights + self.kv + self.activations + self.staging
    }

    /// The memories of `machine` with what a plan takes from each, by memory index. `allocated` tells
    /// what the executor had allocated at most, where it counts.
    pub fn from_usage(
        machine: &Machine,
        usage: &[Usage],
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

/// What was asked, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// What was asked.
    pub label: Label,
    /// What the simulator said.
    pub predicted: RunTimes,
    /// What the executor took, once for each repeat, in the order of the runs.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub runs: Vec<RunTimes>,
    /// The prediction joined with the repeat whose whole run had the median duration.
    pub comparison: Comparison,
    /// What the plan takes from each memory.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub memory: Vec<MemoryUse>,
    /// Which sublayer where.
    pub placement: PlacementMap,
}

impl Configuration {
    /// Joins a predicted trace with the measured traces of one or more repeats.
    pub fn from_traces(
        label: Label,
        predicted: &Trace,
        measured: &[Trace],
        memory: Vec<MemoryUse>,
        placement: PlacementMap,
    ) -> Result<Self, ReportError> {
        let refused = |source| ReportError::Configuration { name: label.name.clone(), source };
        // Every repeat must be of this run, though only one is shown.
        let comparisons: Result<Vec<_>, _> =
            measured.iter().map(|trace| Comparison::join(predicted, trace)).collect();
        let mut ordered: Vec<_> = comparisons.map_err(refused)?.into_iter().zip(measured).collect();
        ordered.sort_by_key(|(_, trace)| trace.steps.last().map(|step| step.end_ns));
        let runs = measured.iter().map(RunTimes::from_trace).collect();
        let middle = ordered.len().saturating_sub(1) / 2;
        let shown = ordered.into_iter().nth(middle).map(|(comparison, _)| comparison);
        let comparison = shown.ok_or_else(|| refused(JoinError::NothingMeasured))?;
        Ok(Self { predicted: RunTimes::from_trace(predicted), runs, comparison, memory, placement, label })
    }

    /// TTFT: the prediction, and the median of the repeats.
    pub fn ttft(&self) -> Pair {
        let measured = median(&self.ttft_runs()).map_or(Seconds::ZERO, Seconds::new);
        Pair { predicted: self.predicted.ttft, measured }
    }

    /// TPOT: the prediction, and the median of the repeats. `None` where one token was asked for.
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
