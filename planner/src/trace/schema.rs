//! The record of a run. Simulator and executor share this schema.

use crate::cost::TaskCost;
use crate::program::{PhaseTimes, Program, TaskId};
use hwprofiles::{Bytes, Flop, Machine, Seconds};
use scenarios::{Phase, Step};
use serde::{Deserialize, Serialize};

/// Who wrote a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recorder {
    /// The simulator.
    Simulated,
    /// The executor, on real devices.
    Measured,
    /// The executor, on `null` devices that wait for the modelled time.
    Modelled,
}

/// One task of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceEvent {
    /// Index of the step in the run.
    pub step: u32,
    /// Index of the task in the step's program.
    pub task: u32,
    /// Layer, absent for embed and head.
    pub layer: Option<u32>,
    /// What the task did: an operator's name, or `fetch qkv`, `fetch kv`, `store kv`, `hop normed`.
    pub name: String,
    /// Name of the device or link whose queue it was in.
    pub lane: String,
    /// Start, nanoseconds since the run began.
    pub start_ns: u64,
    /// End, nanoseconds since the run began.
    pub end_ns: u64,
    /// Bytes moved, see [`TaskCost::moved`].
    pub bytes: Bytes,
    /// FLOP done.
    pub flop: Flop,
}

impl TraceEvent {
    /// The event of task `id`, which ran from `start_ns` to `end_ns` in step number `step`.
    /// Simulator and executor both use it, so their events differ only in times.
    pub fn from_task(
        machine: &Machine,
        program: &Program,
        id: TaskId,
        price: &TaskCost,
        step: u32,
        start_ns: u64,
        end_ns: u64,
    ) -> Self {
        let task = &program.tasks[id.0 as usize];
        Self {
            step,
            task: id.0,
            layer: task.layer,
            name: task.name(),
            lane: task.lane.name(machine).to_owned(),
            start_ns,
            end_ns,
            bytes: price.moved(),
            flop: price.flop,
        }
    }
}

/// One step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepSpan {
    /// Its shape.
    #[serde(flatten)]
    pub step: Step,
    /// Start, nanoseconds since the run began.
    pub start_ns: u64,
    /// End of the last task, including sampling if tokens are sampled.
    pub end_ns: u64,
    /// Whether the draft runs this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    /// Output tokens of all its sequences. Absent without a draft: then a decode step yields one
    /// token of each sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
}

impl StepSpan {
    /// A step of the model in a run without a draft.
    pub fn new(step: Step, start_ns: u64, end_ns: u64) -> Self {
        Self { step, start_ns, end_ns, draft: false, tokens: None }
    }

    /// Output tokens of all its sequences. The first token of a sequence does not count.
    fn yields(&self) -> f64 {
        match (self.tokens, self.step.phase) {
            (Some(tokens), _) => tokens,
            (None, Phase::Decode) if !self.draft => self.step.batch as f64,
            (None, _) => 0.0,
        }
    }
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Who wrote it.
    pub recorder: Recorder,
    /// The machine's name.
    pub machine: String,
    /// The model's name.
    pub model: String,
    /// Fingerprint of the plan.
    pub plan: String,
    /// The steps, in order.
    pub steps: Vec<StepSpan>,
    /// The tasks, by step, then by index.
    pub events: Vec<TraceEvent>,
}

impl PhaseTimes {
    /// The times of a run of these steps, as defined by [`Trace::ttft_ns`] and [`Trace::tpot_ns`].
    pub fn from_steps(steps: &[StepSpan]) -> Self {
        let tpot = tpot_ns(steps).map(|nanos| Seconds::from_nanos(1) * nanos);
        Self { ttft: Seconds::from_nanos(ttft_ns(steps)), tpot }
    }
}

impl Trace {
    /// TTFT in nanoseconds: the end of the last prefill step. Zero without a prefill step.
    pub fn ttft_ns(&self) -> u64 {
        ttft_ns(&self.steps)
    }

    /// TPOT in nanoseconds: (end − first token) ÷ decode steps. With a draft, sequences may end at
    /// different times: then it is the time that sequences spend in steps after their first token ÷
    /// the tokens of these steps. `None` without a decode step.
    pub fn tpot_ns(&self) -> Option<f64> {
        tpot_ns(&self.steps)
    }

    /// Output tokens of all sequences: the first token of each, and those of the decode steps.
    pub fn output_tokens(&self) -> f64 {
        let batch = self.steps.first().map_or(0, |span| span.step.batch);
        batch as f64 + self.steps.iter().map(StepSpan::yields).sum::<f64>()
    }
}

fn ttft_ns(steps: &[StepSpan]) -> u64 {
    steps.iter().rfind(|span| span.step.phase == Phase::Prefill).map_or(0, |span| span.end_ns)
}

fn tpot_ns(steps: &[StepSpan]) -> Option<f64> {
    let decodes = || steps.iter().filter(|span| span.step.phase == Phase::Decode);
    let end = steps.last()?.end_ns;
    if decodes().all(|span| span.tokens.is_none()) {
        let count = decodes().count();
        return (count > 0).then(|| (end - ttft_ns(steps)) as f64 / count as f64);
    }
    let spent = |span: &StepSpan| (span.end_ns - span.start_ns) as f64 * span.step.batch as f64;
    Some(decodes().map(spent).sum::<f64>() / decodes().map(StepSpan::yields).sum::<f64>())
}
