//! The times of a run's passes and tasks, and the trace that is made of them.

use crate::error::ExecutorError;
use crate::run::engine::RunEngine;
use crate::run::shared::{BetweenPasses, TaskInterval};
use planner::{Recorder, StepSpan, TaskId, Trace, TraceEvent};
use scenarios::Step;

/// Times of every task of every pass so far: 16 bytes each.
#[derive(Debug)]
pub(crate) struct RunLog {
    /// By lane, then in the order in which the lane ran them.
    tasks: Vec<Vec<TaskInterval>>,
    /// When the lanes were ready for the first pass, and when they had finished each.
    ends: Vec<u64>,
}

impl RunLog {
    /// An empty log with room for `steps`.
    pub fn new(engine: &RunEngine, steps: &[Step]) -> Self {
        let room = |&lane| steps.iter().map(|step| engine.tasks_of(step.phase, lane).len()).sum();
        let tasks = engine.lanes.iter().map(|lane| Vec::with_capacity(room(lane))).collect();
        Self { tasks, ends: Vec::with_capacity(steps.len() + 1) }
    }

    /// Adds the end of a pass, and the times of its tasks where `tasks` are wanted.
    pub fn note(&mut self, state: &BetweenPasses<'_>, tasks: bool) {
        self.ends.push(state.now);
        for (tasks, record) in self.tasks.iter_mut().zip(&state.records).filter(|_| tasks) {
            tasks.extend(&record.tasks);
        }
    }

    /// Passes so far.
    pub fn passes(&self) -> usize {
        self.ends.len().saturating_sub(1)
    }

    /// The trace of `steps`, which are the steps that ran, with its `tasks` where they were logged.
    /// Time 0 is when the last lane was ready for the first step.
    pub fn trace(&self, engine: &RunEngine, steps: &[Step], tasks: bool) -> Result<Trace, ExecutorError> {
        let zero = self.ends[0];
        let (mut spans, mut events) = (Vec::new(), Vec::new());
        let mut next = vec![0; self.tasks.len()];
        for ((index, step), ends) in steps.iter().enumerate().zip(self.ends.windows(2)) {
            spans.push(StepSpan::new(*step, ends[0] - zero, ends[1] - zero));
            if !tasks {
                continue;
            }
            let program = engine.programs.program(step.phase);
            let mut times = vec![None; program.tasks.len()];
            for ((lane, log), next) in engine.lanes.iter().zip(&self.tasks).zip(&mut next) {
                let tasks = engine.tasks_of(step.phase, *lane);
                for (task, interval) in tasks.iter().zip(&log[*next..]) {
                    times[task.0 as usize] = Some(*interval);
                }
                *next += tasks.len();
            }
            for (task, time) in times.into_iter().enumerate() {
                let time = time.expect("every task of every step has run");
                let price = engine.setup.cost_model().task_cost(&program.tasks[task], step)?;
                let (id, start, end) = (TaskId(task as u32), time.start - zero, time.end - zero);
                events.push(TraceEvent::from_task(
                    &engine.setup.machine,
                    program,
                    id,
                    &price,
                    index as u32,
                    start,
                    end,
                ));
            }
        }
        Ok(engine.setup.trace(Recorder::Measured, spans, events))
    }
}
