//! The steady state of equal layers: where the state of a simulation occurs again, counted from the
//! present time and task, the future is a copy of the past.

use crate::clock::SimTime;
use planner::{Program, Task};
use std::ops::Range;

/// Most layers of a repeated sequence.
const LAYERS: usize = 8;
/// The fewest repetitions that are worth the search for a steady state.
const REPETITIONS: usize = 4;
/// Earlier states that are compared with the present one: a state may occur again only after
/// several repetitions.
const STATES: usize = 4;

/// Tasks each of which repeats the one `period` tasks before it: the same work, which waits for the
/// same tasks, counted from its own index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepeatedTasks {
    /// With the first occurrence.
    pub tasks: Range<usize>,
    pub period: usize,
}

impl RepeatedTasks {
    /// The repeated sequences of layers in `program`, where tasks of equal `keys` do equal work in
    /// the same lane.
    pub fn find(program: &Program, keys: &[u32]) -> Vec<Self> {
        let tasks = &program.tasks;
        let starts: Vec<usize> =
            (1..tasks.len()).filter(|&at| tasks[at].layer != tasks[at - 1].layer).collect();
        let repeats = |at: usize, period: usize| {
            keys[at] == keys[at - period] && waits_alike(&tasks[at], &tasks[at - period], period)
        };
        let mut found: Vec<Self> = Vec::new();
        for (layer, &start) in starts.iter().enumerate() {
            if found.last().is_some_and(|last| start < last.tasks.end) {
                continue;
            }
            let periods =
                starts[layer.saturating_sub(LAYERS)..layer].iter().rev().map(|before| start - before);
            for period in periods {
                let end = (start..tasks.len()).find(|&at| !repeats(at, period)).unwrap_or(tasks.len());
                if end - start >= REPETITIONS * period {
                    found.push(Self { tasks: start - period..end, period });
                    break;
                }
            }
        }
        found
    }
}

/// Whether `one` waits for the tasks that are `period` after those that `before` waits for.
fn waits_alike(one: &Task, before: &Task, period: usize) -> bool {
    let shifted =
        |(one, before): (&planner::TaskId, &planner::TaskId)| one.0 as usize == before.0 as usize + period;
    one.after.len() == before.after.len() && one.after.iter().zip(&before.after).all(shifted)
}

/// A state that occurred again: the tasks and the time since then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recurrence {
    pub tasks: usize,
    pub time: SimTime,
}

/// Looks for states that occur again in the repeated sequences of one program.
#[derive(Debug)]
pub(crate) struct SteadyState<'r> {
    sequences: &'r [RepeatedTasks],
    /// The index of the sequence of the states.
    current: usize,
    /// States with the task that started and the time.
    states: Vec<(usize, SimTime, Vec<u64>)>,
}

impl<'r> SteadyState<'r> {
    pub fn new(sequences: &'r [RepeatedTasks]) -> Self {
        Self { sequences, current: 0, states: Vec::new() }
    }

    /// The sequence whose next repetition begins with `task`. In each sequence these tasks are in
    /// one lane.
    pub fn begun_by(&self, task: u32) -> Option<usize> {
        let task = task as usize;
        let begins = |sequence: &RepeatedTasks| {
            sequence.tasks.contains(&task) && (task - sequence.tasks.start).is_multiple_of(sequence.period)
        };
        (self.current..self.sequences.len()).find(|&index| begins(&self.sequences[index]))
    }

    /// The sequence of that index.
    pub fn sequence(&self, index: usize) -> &'r RepeatedTasks {
        &self.sequences[index]
    }

    /// Notes the state in which `task` starts a repetition of the sequence `index`, and returns
    /// how long ago the same state occurred.
    pub fn note(&mut self, index: usize, task: u32, now: SimTime, state: Vec<u64>) -> Option<Recurrence> {
        if index != self.current {
            (self.current, self.states) = (index, Vec::new());
        }
        let known = self.states.iter().find(|(.., known)| *known == state);
        if let Some(&(then, time, _)) = known {
            return Some(Recurrence { tasks: task as usize - then, time: now - time });
        }
        if self.states.len() == STATES {
            self.states.remove(0);
        }
        self.states.push((task as usize, now, state));
        None
    }

    /// Looks only at later sequences from now on.
    pub fn leave(&mut self) {
        (self.current, self.states) = (self.current + 1, Vec::new());
    }
}
