//! The trace: the record of a run, simulated or measured. One schema for both.

use crate::cost::Price;
use crate::program::{Program, TaskId};
use hwprofiles::{Bytes, Flop, Machine};
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
pub struct Event {
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
    /// Bytes moved, see [`Price::moved`].
    pub bytes: Bytes,
    /// FLOP done.
    pub flop: Flop,
}

impl Event {
    /// The event of a task that ran from `start_ns` to `end_ns` in step number `step` of a run. The simulator and
    /// the executor both write their events with this, so that the two differ in nothing but the times.
    pub fn of(
        machine: &Machine,
        program: &Program,
        id: TaskId,
        price: &Price,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpan {
    /// Its shape.
    #[serde(flatten)]
    pub step: Step,
    /// Start, nanoseconds since the run began.
    pub start_ns: u64,
    /// End: the last task's end, sampling included where tokens are sampled.
    pub end_ns: u64,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    pub events: Vec<Event>,
}

impl Trace {
    /// TTFT in nanoseconds: the end of the last prefill step. Zero where there is none.
    pub fn ttft_ns(&self) -> u64 {
        self.steps.iter().rfind(|s| s.step.phase == Phase::Prefill).map_or(0, |s| s.end_ns)
    }

    /// TPOT in nanoseconds: (end − first token) / decode steps. `None` where there is no decode step.
    pub fn tpot_ns(&self) -> Option<f64> {
        let decodes = self.steps.iter().filter(|s| s.step.phase == Phase::Decode).count();
        let end = self.steps.last()?.end_ns;
        (decodes > 0).then(|| (end - self.ttft_ns()) as f64 / decodes as f64)
    }
}
