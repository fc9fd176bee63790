//! Comparison of a predicted trace with a measured one. Both come from the same program, so the
//! comparison is a join on (step, task); traces that do not match are refused. `metrics.md` defines
//! the metrics.

use crate::numbers::pair::Pair;
use crate::numbers::serde_forms::{in_seconds, line_by_line};
use hwprofiles::Seconds;
use planner::{Recorder, StepSpan, Trace, TraceEvent};
use scenarios::{Phase, Step};
use serde::{Deserialize, Serialize};

/// Two traces of different runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The traces are of different machines, models or plans.
    #[error(
        "the traces differ in their {key}: predicted for '{predicted}', measured with '{measured}'; \
         compare two traces of one plan"
    )]
    Origin {
        /// `machine`, `model` or `plan`.
        key: &'static str,
        /// The value of the prediction.
        predicted: String,
        /// The value of the measurement.
        measured: String,
    },
    /// The traces have different steps.
    #[error(
        "the traces differ in step {index}: predicted {predicted}, measured {measured}; compare two \
         traces of one batch size, prompt and output"
    )]
    Step {
        /// Index of the first step that differs.
        index: usize,
        /// The prediction's step, or `nothing`.
        predicted: String,
        /// The measurement's step, or `nothing`.
        measured: String,
    },
    /// The traces have different tasks.
    #[error(
        "the traces differ in event {index}: predicted {predicted}, measured {measured}; compare two \
         traces of one plan"
    )]
    Task {
        /// Index of the first event that differs.
        index: usize,
        /// The prediction's event, or `nothing`.
        predicted: String,
        /// The measurement's event, or `nothing`.
        measured: String,
    },
    /// An event refers to a step that the trace lacks, or ends before it starts.
    #[error("the trace of the {} is damaged at event {index}: {reason}; record it again", recorder_name(*recorder))]
    Damaged {
        /// The recorder of the trace.
        recorder: Recorder,
        /// Index of the event.
        index: usize,
        /// What is wrong with the event.
        reason: &'static str,
    },
    /// No measured trace was given.
    #[error("there is no measured trace to compare with")]
    NothingMeasured,
}

/// The maker of a trace, in words.
fn recorder_name(recorder: Recorder) -> &'static str {
    match recorder {
        Recorder::Simulated => "simulator",
        Recorder::Measured => "executor",
        Recorder::Modelled => "executor on null devices",
    }
}

/// All tasks of one operator or one kind of transfer in one phase on one lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorRow {
    /// Prefill or decode.
    pub phase: Phase,
    /// The operator's name, or `fetch qkv`, `hop normed`, …
    pub name: String,
    /// The device or link it ran on.
    pub lane: String,
    /// The number of tasks.
    pub count: u64,
    /// The sum of their durations.
    pub total: Pair,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRow {
    /// Its phase, batch and tokens.
    pub step: Step,
    /// Its duration from start to end.
    pub time: Pair,
}

/// The busy time of a lane in all steps of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneRow {
    /// Prefill or decode.
    pub phase: Phase,
    /// The device or link.
    pub lane: String,
    /// The sum of its tasks' durations. A lane runs one task at a time.
    pub busy: Pair,
}

/// When a task ran, relative to the start of its step. Negative where it started before the step.
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
    /// The layer; absent for embed and head.
    pub layer: Option<u32>,
    /// The operator or transfer.
    pub name: String,
    /// The device or link.
    pub lane: String,
    /// The predicted interval.
    pub predicted: Interval,
    /// The measured interval.
    pub measured: Interval,
}

/// One step with all of its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// The index of the step in the run.
    pub index: usize,
    /// Its phase, batch and tokens.
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
    /// The recorder of the prediction.
    pub predicted_by: Recorder,
    /// The recorder of the measurement.
    pub measured_by: Recorder,
    /// Time to first token.
    pub ttft: Pair,
    /// Time per output token; absent where there is no decode step.
    pub tpot: Option<Pair>,
    /// Every step, in order.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub steps: Vec<StepRow>,
    /// The lanes in use, by phase, then in order of first use.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub lanes: Vec<LaneRow>,
    /// The operators and kinds of transfers, by phase, then in order of first use.
    #[serde(serialize_with = "line_by_line::serialize")]
    pub operators: Vec<OperatorRow>,
    /// The last prefill step and the middle decode step, with their tasks.
    pub timelines: Vec<Timeline>,
}

impl Comparison {
    /// Joins two traces on (step, task).
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

    /// The operators of one phase.
    pub fn phase_operators(&self, phase: Phase) -> impl Iterator<Item = &OperatorRow> {
        self.operators.iter().filter(move |row| row.phase == phase)
    }

    /// The measured duration of `row` ÷ that of all steps of its phase. Lanes work at the same
    /// time, so shares may add up to more than 1. `None` where nothing was measured.
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
            let reason = if event.step as usize >= trace.steps.len() {
                "its step is not in the trace"
            } else if event.end_ns < event.start_ns {
                "it ends before it starts"
            } else {
                continue;
            };
            return Err(JoinError::Damaged { recorder: trace.recorder, index, reason });
        }
    }
    let word = |event: Option<&TraceEvent>| match event {
        None => "nothing".to_owned(),
        Some(e) => format!("'{}' on '{}' (step {}, task {})", e.name, e.lane, e.step, e.task),
    };
    fn key(e: &TraceEvent) -> (u32, u32, Option<u32>, &str, &str) {
        (e.step, e.task, e.layer, &e.name, &e.lane)
    }
    match first_difference(&predicted.events, &measured.events, |p, m| key(p) == key(m)) {
        None => Ok(()),
        Some((index, p, m)) => Err(JoinError::Task { index, predicted: word(p), measured: word(m) }),
    }
}

/// The first index at which two lists differ, with the element of each list.
fn first_difference<'a, T>(
    left: &'a [T],
    right: &'a [T],
    equal: impl Fn(&T, &T) -> bool,
) -> Option<(usize, Option<&'a T>, Option<&'a T>)> {
    let longest = left.len().max(right.len());
    (0..longest).map(|index| (index, left.get(index), right.get(index))).find(|(_, l, r)| match (l, r) {
        (Some(l), Some(r)) => !equal(l, r),
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

/// Sums up the joined events by phase and `key`, in order of first appearance: the key, the number
/// of events and their total durations. Nanoseconds are added as integers, which is exact.
fn totals<'a, K: PartialEq>(
    predicted: &'a Trace,
    measured: &'a Trace,
    key: impl Fn(&'a TraceEvent) -> K,
) -> Vec<(Phase, K, u64, Pair)> {
    let length = |event: &TraceEvent| event.end_ns - event.start_ns;
    let mut rows: Vec<(Phase, K, u64, [u64; 2])> = Vec::new();
    for (event, other) in predicted.events.iter().zip(&measured.events) {
        let (phase, key) = (predicted.steps[event.step as usize].step.phase, key(event));
        // A program has a few dozen kinds of tasks: a search is as fast as a map and keeps their
        // order.
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

/// The last prefill step, which ends with the first token, and the middle decode step.
fn shown_steps(trace: &Trace) -> Vec<usize> {
    let indices =
        |phase| trace.steps.iter().enumerate().filter(move |(_, s)| s.step.phase == phase).map(|(i, _)| i);
    let decodes: Vec<_> = indices(Phase::Decode).collect();
    indices(Phase::Prefill).next_back().into_iter().chain(decodes.get(decodes.len() / 2).copied()).collect()
}

fn timeline(predicted: &Trace, measured: &Trace, index: usize) -> Timeline {
    let interval = |trace: &Trace, event: &TraceEvent| {
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
