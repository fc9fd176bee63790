//! A predicted trace beside a measured one. Both run the same program, so comparing them is a join on
//! (step, task), and a trace that does not match is refused. The metrics are defined in `metrics.md`.

use crate::numbers::pair::Pair;
use crate::numbers::serde_forms::{in_seconds, line_by_line};
use hwprofiles::Seconds;
use planner::{Event, Recorder, StepSpan, Trace};
use scenarios::{Phase, Step};
use serde::{Deserialize, Serialize};

/// Two traces that are not of the same run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Made on another machine, for another model or from another plan.
    #[error(
        "the traces differ in their {key}: predicted for '{predicted}', measured with '{measured}'; compare two traces of one plan"
    )]
    Origin {
        /// `machine`, `model` or `plan`.
        key: &'static str,
        /// The prediction's.
        predicted: String,
        /// The measurement's.
        measured: String,
    },
    /// Another list of steps.
    #[error(
        "the traces differ in step {index}: predicted {predicted}, measured {measured}; compare two traces of one batch size, prompt and output"
    )]
    Step {
        /// Index of the first step that differs.
        index: usize,
        /// The prediction's step, or `nothing`.
        predicted: String,
        /// The measurement's step, or `nothing`.
        measured: String,
    },
    /// Another list of tasks.
    #[error(
        "the traces differ in event {index}: predicted {predicted}, measured {measured}; compare two traces of one plan"
    )]
    Task {
        /// Index of the first event that differs.
        index: usize,
        /// The prediction's event, or `nothing`.
        predicted: String,
        /// The measurement's event, or `nothing`.
        measured: String,
    },
    /// An event of a step that the trace does not have, or that ends before it starts.
    #[error("the {recorder:?} trace is damaged at event {index}: {reason}; record it again")]
    Damaged {
        /// Which trace.
        recorder: Recorder,
        /// Index of the event.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is nothing to compare.
    #[error("there is no measured trace to compare with")]
    NothingMeasured,
}

/// The tasks of one operator, or of one kind of transfer, in all steps of one phase on one lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorRow {
    /// Prefill or decode.
    pub phase: Phase,
    /// The operator's name, or `fetch qkv`, `hop normed`, …
    pub name: String,
    /// The device or link it ran on.
    pub lane: String,
    /// How many tasks.
    pub count: u64,
    /// Their durations, added up.
    pub total: Pair,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRow {
    /// Its shape.
    pub step: Step,
    /// Its duration, from its start to its end.
    pub time: Pair,
}

/// How long a lane was at work in all steps of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneRow {
    /// Prefill or decode.
    pub phase: Phase,
    /// The device or link.
    pub lane: String,
    /// The durations of its tasks, added up: a lane runs one at a time.
    pub busy: Pair,
}

/// When a task ran, counted from the start of its step. Negative where it started before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Start.
    #[serde(rename = "start_s", with = "in_seconds")]
    pub start: Seconds,
    /// End.
    #[serde(rename = "end_s", with = "in_seconds")]
    pub end: Seconds,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRow {
    /// The layer, absent for embed and head.
    pub layer: Option<u32>,
    /// What was done.
    pub name: String,
    /// Where.
    pub lane: String,
    /// When it should have run.
    pub predicted: Interval,
    /// When it did.
    pub measured: Interval,
}

/// One step with all of its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// Index of the step in the run.
    pub index: usize,
    /// Its shape.
    pub step: Step,
    /// Its duration.
    pub time: Pair,
    /// Its tasks, by index.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub tasks: Vec<TaskRow>,
}

/// Two traces of one run, joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Who wrote the prediction.
    pub predicted_by: Recorder,
    /// Who wrote the measurement.
    pub measured_by: Recorder,
    /// Time to first token.
    pub ttft: Pair,
    /// Time per output token; absent where there is no decode step.
    pub tpot: Option<Pair>,
    /// Every step, in order.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub steps: Vec<StepRow>,
    /// Every lane in use, by phase, then in order of first use.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub lanes: Vec<LaneRow>,
    /// Every operator and kind of transfer, by phase, then in order of first use.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub operators: Vec<OperatorRow>,
    /// The last prefill step and the decode step in the middle, with their tasks.
    pub timelines: Vec<Timeline>,
}

impl Comparison {
    /// Joins two traces on (step, task). Refuses traces of different machines, models, plans, steps or tasks, and
    /// says which differs.
    pub fn join(predicted: &Trace, measured: &Trace) -> Result<Self, JoinError> {
        check_origin(predicted, measured)?;
        check_steps(predicted, measured)?;
        check_tasks(predicted, measured)?;
        let tpot = predicted.tpot_ns().zip(measured.tpot_ns());
        Ok(Self {
            predicted_by: predicted.recorder,
            measured_by: measured.recorder,
            ttft: nanos(predicted.ttft_ns(), measured.ttft_ns()),
            tpot: tpot
                .map(|(p, m)| Pair { predicted: Seconds::new(p / 1e9), measured: Seconds::new(m / 1e9) }),
            steps: steps(predicted, measured),
            lanes: lanes(predicted, measured),
            operators: operators(predicted, measured),
            timelines: shown_steps(predicted)
                .into_iter()
                .map(|it| timeline(predicted, measured, it))
                .collect(),
        })
    }

    /// The rows of one phase.
    pub fn phase_operators(&self, phase: Phase) -> impl Iterator<Item = &OperatorRow> {
        self.operators.iter().filter(move |row| row.phase == phase)
    }

    /// The row's measured duration ÷ the measured duration of its phase's steps. Shares of lanes that work at the same
    /// time add up to more than 1. `None` where nothing was measured.
    pub fn share(&self, row: &OperatorRow) -> Option<f64> {
        let steps = self.phase_time(row.phase).measured;
        (steps > Seconds::ZERO).then(|| row.total.measured / steps)
    }

    /// The total duration of the steps of one phase.
    pub fn phase_time(&self, phase: Phase) -> Pair {
        self.steps.iter().filter(|row| row.step.phase == phase).map(|row| row.time).sum()
    }
}

fn check_origin(predicted: &Trace, measured: &Trace) -> Result<(), JoinError> {
    let origins = [
        ("machine", &predicted.machine, &measured.machine),
        ("model", &predicted.model, &measured.model),
        ("plan", &predicted.plan, &measured.plan),
    ];
    match origins.into_iter().find(|(_, p, m)| p != m) {
        None => Ok(()),
        Some((key, p, m)) => Err(JoinError::Origin { key, predicted: p.clone(), measured: m.clone() }),
    }
}

fn check_steps(predicted: &Trace, measured: &Trace) -> Result<(), JoinError> {
    let word = |span: Option<&StepSpan>| match span.map(|it| it.step) {
        None => "nothing".to_owned(),
        Some(s) => format!("{} of {} × {} tokens after {}", s.phase, s.batch, s.new_tokens, s.past_tokens),
    };
    match first_difference(&predicted.steps, &measured.steps, |p, m| p.step == m.step) {
        None => Ok(()),
        Some((index, p, m)) => Err(JoinError::Step { index, predicted: word(p), measured: word(m) }),
    }
}

fn check_tasks(predicted: &Trace, measured: &Trace) -> Result<(), JoinError> {
    for trace in [predicted, measured] {
        for (index, event) in trace.events.iter().enumerate() {
            let reason = match () {
                () if event.step as usize >= trace.steps.len() => "its step is not in the trace",
                () if event.end_ns < event.start_ns => "it ends before it starts",
                () => continue,
            };
            return Err(JoinError::Damaged { recorder: trace.recorder, index, reason });
        }
    }
    let word = |event: Option<&Event>| match event {
        None => "nothing".to_owned(),
        Some(e) => format!("'{}' on '{}' (step {}, task {})", e.name, e.lane, e.step, e.task),
    };
    fn key(e: &Event) -> (u32, u32, Option<u32>, &str, &str) {
        (e.step, e.task, e.layer, &e.name, &e.lane)
    }
    match first_difference(&predicted.events, &measured.events, |p, m| key(p) == key(m)) {
        None => Ok(()),
        Some((index, p, m)) => Err(JoinError::Task { index, predicted: word(p), measured: word(m) }),
    }
}

/// The first index at which two lists are not alike, with what each has there.
fn first_difference<'a, T>(
    left: &'a [T],
    right: &'a [T],
    alike: impl Fn(&T, &T) -> bool,
) -> Option<(usize, Option<&'a T>, Option<&'a T>)> {
    let longest = left.len().max(right.len());
    (0..longest).map(|index| (index, left.get(index), right.get(index))).find(|(_, l, r)| match (l, r) {
        (Some(l), Some(r)) => !alike(l, r),
        _ => true,
    })
}

fn nanos(predicted: u64, measured: u64) -> Pair {
    Pair { predicted: Seconds::from_nanos(predicted), measured: Seconds::from_nanos(measured) }
}

fn steps(predicted: &Trace, measured: &Trace) -> Vec<StepRow> {
    let length = |span: &StepSpan| span.end_ns.saturating_sub(span.start_ns);
    let spans = predicted.steps.iter().zip(&measured.steps);
    spans.map(|(p, m)| StepRow { step: p.step, time: nanos(length(p), length(m)) }).collect()
}

/// Adds up the joined events by phase and by what `key` tells of them, in order of first appearance: the key, how
/// many there were, and the sum of their durations. Nanoseconds are added as integers, so that nothing is rounded.
fn totals<'a, K: PartialEq>(
    predicted: &'a Trace,
    measured: &'a Trace,
    key: impl Fn(&'a Event) -> K,
) -> Vec<(Phase, K, u64, Pair)> {
    let length = |event: &Event| event.end_ns - event.start_ns;
    let mut rows: Vec<(Phase, K, u64, [u64; 2])> = Vec::new();
    for (event, other) in predicted.events.iter().zip(&measured.events) {
        let (phase, key) = (predicted.steps[event.step as usize].step.phase, key(event));
        // A program has a few dozen kinds of tasks, so a search is as quick as a map and keeps their order.
        let index = rows.iter().position(|row| row.0 == phase && row.1 == key).unwrap_or_else(|| {
            rows.push((phase, key, 0, [0; 2]));
            rows.len() - 1
        });
        let (_, _, count, [p, m]) = &mut rows[index];
        (*count, *p, *m) = (*count + 1, *p + length(event), *m + length(other));
    }
    rows.sort_by_key(|row| row.0);
    rows.into_iter().map(|(phase, key, count, [p, m])| (phase, key, count, nanos(p, m))).collect()
}

fn lanes(predicted: &Trace, measured: &Trace) -> Vec<LaneRow> {
    let rows = totals(predicted, measured, |event| &event.lane).into_iter();
    rows.map(|(phase, lane, _, busy)| LaneRow { phase, lane: lane.clone(), busy }).collect()
}

fn operators(predicted: &Trace, measured: &Trace) -> Vec<OperatorRow> {
    let rows = totals(predicted, measured, |event| (&event.name, &event.lane)).into_iter();
    let row = |(phase, (name, lane), count, total): (_, (&String, &String), _, _)| OperatorRow {
        phase,
        name: name.clone(),
        lane: lane.clone(),
        count,
        total,
    };
    rows.map(row).collect()
}

/// The last prefill step, whose end is the first token, and the decode step in the middle.
fn shown_steps(trace: &Trace) -> Vec<usize> {
    let of =
        |phase| trace.steps.iter().enumerate().filter(move |(_, s)| s.step.phase == phase).map(|(i, _)| i);
    let decodes: Vec<_> = of(Phase::Decode).collect();
    of(Phase::Prefill).next_back().into_iter().chain(decodes.get(decodes.len() / 2).copied()).collect()
}

fn timeline(predicted: &Trace, measured: &Trace, index: usize) -> Timeline {
    let interval = |trace: &Trace, event: &Event| {
        let zero = trace.steps[index].start_ns;
        let from_step = |at: u64| match at.checked_sub(zero) {
            Some(later) => Seconds::from_nanos(later),
            None => Seconds::ZERO - Seconds::from_nanos(zero - at),
        };
        Interval { start: from_step(event.start_ns), end: from_step(event.end_ns) }
    };
    let events = predicted.events.iter().zip(&measured.events);
    let tasks = events.filter(|(p, _)| p.step as usize == index).map(|(p, m)| TaskRow {
        layer: p.layer,
        name: p.name.clone(),
        lane: p.lane.clone(),
        predicted: interval(predicted, p),
        measured: interval(measured, m),
    });
    let tasks = tasks.collect();
    Timeline { index, step: predicted.steps[index].step, time: steps(predicted, measured)[index].time, tasks }
}
