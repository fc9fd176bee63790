//! The trace: the record of a run, simulated or measured. One schema for both.

use crate::cost::TaskCost;
use crate::program::PhaseTimes;
use crate::program::{Program, TaskId};
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
    /// The executor, on `null` devices that spend modelled time.
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
    /// What was done: an operator's name, or `fetch qkv`, `fetch kv`, `store kv`, `hop normed`.
    pub name: String,
    /// The device or link whose queue it was in.
    pub lane: String,
    /// Start, nanoseconds since the run began.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Bytes moved, see [`TaskCost::moved`].
    pub bytes: Bytes,
    /// FLOP done.
    pub flop: Flop,
}

impl TraceEvent {
    /// The event of a task that ran from `start_ns` to `end_ns` in step number `step` of a run. The simulator and
    /// the executor both write their events with this, so that the two differ in nothing but the times.
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
    /// End: the last task's end, sampling included where tokens are sampled.
    pub end_ns: u64,
    /// Whether it is the draft that makes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    /// Output tokens that it yields, of all its sequences together; absent where nothing is drafted, and a decode step
    /// yields one of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
}

impl StepSpan {
    /// A step of the model itself in a run without a draft.
    pub fn new(step: Step, start_ns: u64, end_ns: u64) -> Self {
        Self { step, start_ns, end_ns, draft: false, tokens: None }
    }

    /// Output tokens that it yields, of all its sequences together; the first ones of a run are nobody's.
    fn yields(&self) -> f64 {
        match (self.tokens, self.step.phase) {
            (Some(tokens), _) => tokens,
            (None, Phase::Decode) if !self.draft => self.step.batch as f64,
            (None, _) => 0.0,
        }
    }
}

/// A run.
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
    /// Those of a run of these steps, as [`Trace::ttft_ns`] and [`Trace::tpot_ns`] define them.
    pub fn from_steps(steps: &[StepSpan]) -> Self {
        let tpot = tpot_ns(steps).map(|nanos| Seconds::from_nanos(1) * nanos);
        Self { ttft: Seconds::from_nanos(ttft_ns(steps)), tpot }
    }
}

impl Trace {
    /// TTFT in nanoseconds: the end of the last prefill step. Zero where there is none.
    pub fn ttft_ns(&self) -> u64 {
        ttft_ns(&self.steps)
    }

    /// TPOT in nanoseconds: (end − first token) / decode steps. With a draft, whose sequences may end one after the other,
    /// the time that sequences spend in steps after their first token ÷ the tokens that they get there. `None` where
    /// there is no decode step.
    pub fn tpot_ns(&self) -> Option<f64> {
        tpot_ns(&self.steps)
    }

    /// Output tokens of all sequences together: the first of each, and those of the decode steps.
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
