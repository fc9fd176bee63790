//! Laws of joining a prediction with a measurement.

use crate::sample;
use planner::{Recorder, Trace};
use reports::{Comparison, Configuration, JoinError, MemoryUse, PlacementMap, Validation};
use scenarios::Phase;
use std::path::Path;

fn two_traces() -> (Trace, Trace) {
    let label = sample::label("planned", 2, 64);
    let placement = sample::placement(&sample::machine(), &sample::model(), "planned");
    let predicted = sample::trace(&label, &placement, Recorder::Simulated, |_| 1.0);
    let mut noise = sample::Noise(7);
    let measured = sample::trace(&label, &placement, Recorder::Measured, |_| noise.factor(0.3));
    (predicted, measured)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn a_trace_compared_with_itself_has_no_error_anywhere() {
    let (predicted, _) = two_traces();
    let same = Comparison::join(&predicted, &predicted).unwrap();
    let operators = same.operators.iter().map(|row| row.total);
    let pairs =
        operators.chain(same.steps.iter().map(|row| row.time)).chain(same.lanes.iter().map(|row| row.busy));
    for pair in pairs.chain([same.ttft, same.tpot.unwrap()]) {
        assert!(pair.error().is_none_or(|error| error == 0.0), "{pair:?}");
    }
}

#[test]
fn operators_and_lanes_add_up_to_the_events_and_tpot_to_the_decode_steps() {
    let (predicted, measured) = two_traces();
    let it = Comparison::join(&predicted, &measured).unwrap();
    for (trace, side) in [(&predicted, 0), (&measured, 1)] {
        let time = |pair: reports::Pair| [pair.predicted.get(), pair.measured.get()][side];
        let events: u64 = trace.events.iter().map(|e| e.end_ns - e.start_ns).sum();
        assert!(close(it.operators.iter().map(|row| time(row.total)).sum(), events as f64 * 1e-9));
        assert!(close(it.lanes.iter().map(|row| time(row.busy)).sum(), events as f64 * 1e-9));
        let decodes = trace.steps.iter().filter(|s| s.step.phase == Phase::Decode).count() as f64;
        assert!(close(time(it.phase_time(Phase::Decode)), decodes * time(it.tpot.unwrap())));
        assert!(close(time(it.phase_time(Phase::Prefill)), time(it.ttft)));
    }
    assert_eq!(it.operators.iter().map(|row| row.count).sum::<u64>(), predicted.events.len() as u64);
}

#[test]
fn swapping_the_traces_swaps_the_pairs() {
    let (predicted, measured) = two_traces();
    let there = Comparison::join(&predicted, &measured).unwrap();
    let back = Comparison::join(&measured, &predicted).unwrap();
    let (there, back) = (there.operators.iter().map(|r| r.total), back.operators.iter().map(|r| r.total));
    assert!(there.zip(back).all(|(a, b)| (a.predicted, a.measured) == (b.measured, b.predicted)));
}

#[test]
fn the_timelines_are_the_last_prefill_step_and_the_decode_step_in_the_middle() {
    let (predicted, measured) = two_traces();
    let it = Comparison::join(&predicted, &measured).unwrap();
    let shown: Vec<_> = it.timelines.iter().map(|t| (t.index, t.step.phase)).collect();
    assert_eq!(shown, [(0, Phase::Prefill), (5, Phase::Decode)]);
    for timeline in &it.timelines {
        assert!(timeline.tasks.iter().all(|task| task.predicted.start.get() >= 0.0
            && task.predicted.end <= timeline.time.predicted * (1.0 + 1e-9)
            && task.measured.end <= timeline.time.measured * (1.0 + 1e-9)));
    }
}

#[test]
fn traces_of_different_runs_are_refused_and_the_difference_is_named() {
    let (predicted, measured) = two_traces();
    let refuse = |change: &dyn Fn(&mut Trace), wanted: &str| {
        let mut other = measured.clone();
        change(&mut other);
        let message = Comparison::join(&predicted, &other).unwrap_err().to_string();
        assert!(message.contains(wanted), "'{message}' does not say '{wanted}'");
    };
    refuse(
        &|t| t.machine = "other".into(),
        "machine: predicted for 'example-loopback', measured with 'other'",
    );
    refuse(&|t| t.model = "other".into(), "model: predicted for 'fulcrum-250m', measured with 'other'");
    refuse(
        &|t| t.plan = "other".into(),
        "plan: predicted for 'plan-of-b2-p64-planned', measured with 'other'",
    );
    refuse(
        &|t| t.steps[1].step.past_tokens = 65,
        "step 1: predicted decode of 2 × 1 tokens after 64, measured decode of 2 × 1 tokens after 65",
    );
    refuse(&|t| t.steps.truncate(8), "step 8: predicted decode of 2 × 1 tokens after 71, measured nothing");
    refuse(&|t| drop(t.events.remove(3)), "event 3: predicted 'rotate' on 'cpu' (step 0, task 3)");
    refuse(&|t| t.events[2].lane = "loopback".into(), "event 2: predicted 'qkv_proj' on 'cpu'");
    refuse(&|t| t.events[2].end_ns = 0, "event 2: it ends before it starts");
    refuse(&|t| t.events.last_mut().unwrap().step = 99, "its step is not in the trace");
}

#[test]
fn a_configuration_shows_the_median_repeat_and_needs_one() {
    let label = sample::label("all-cpu", 1, 32);
    let (machine, model) = (sample::machine(), sample::model());
    let placement = sample::placement(&machine, &model, "all-cpu");
    let slowed = |factor: f64| sample::trace(&label, &placement, Recorder::Measured, |_| factor);
    let predicted = sample::trace(&label, &placement, Recorder::Simulated, |_| 1.0);
    let map = PlacementMap::from_placement(&machine, &placement);
    let joined = |measured: &[Trace]| {
        Configuration::from_traces(label.clone(), &predicted, measured, Vec::<MemoryUse>::new(), map.clone())
    };
    let it = joined(&[slowed(3.0), slowed(1.25), slowed(1.0)]).unwrap();
    assert!((it.ttft().error().unwrap() + 0.2).abs() < 1e-4);
    assert!((it.comparison.ttft.error().unwrap() + 0.2).abs() < 1e-4);
    assert!((it.ttft_spread().unwrap() - 2.0 / 1.25).abs() < 1e-4);
    let message = joined(&[]).unwrap_err().to_string();
    assert_eq!(message, "configuration 'b1-p32-all-cpu': there is no measured trace to compare with");
    assert!(matches!(Comparison::join(&slowed(1.0), &two_traces().1), Err(JoinError::Origin { .. })));
}

#[test]
fn results_read_back_as_they_were_written() {
    let validation =
        sample::validation(vec![sample::label("all-cpu", 1, 32), sample::label("planned", 4, 32)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    validation.write(&path).unwrap();
    let again = Validation::read(&path).unwrap();
    // assert_eq! would print both, which are long.
    assert!(again == validation, "the values differ");
    assert!(again.to_json() == validation.to_json(), "the texts differ");
}

#[test]
fn a_person_can_read_the_file_one_row_per_line() {
    let text = sample::validation(vec![sample::label("all-cpu", 1, 32)]).to_json();
    let row = |start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
    assert_eq!(row(r#"{"phase":"decode","name":"attention","lane":"cpu","count":160,"total":{"#), 1);
    // Once in the shown prefill step and once in the shown decode step.
    assert_eq!(row(r#"{"layer":7,"name":"attention","lane":"cpu","predicted":{"start_s":"#), 2);
    assert!(text.lines().all(|line| line.len() < 400), "a line is too long to read");
}

#[test]
fn a_file_that_is_no_validation_is_refused_with_its_name_and_place() {
    let text = sample::validation(vec![sample::label("all-cpu", 1, 32)]).to_json();
    let refuse = |text: &str, wanted: &str| {
        let message = Validation::parse(text, Path::new("results.json")).unwrap_err().to_string();
        assert!(message.starts_with("results.json: ") && message.contains(wanted), "{message}");
    };
    refuse(
        &text.replacen("\"validation\"", "\"capacity\"", 1),
        "kind is 'capacity'; this version reads 'validation'",
    );
    refuse(&text.replacen("\"version\": 1", "\"version\": 9", 1), "version is 9; this version reads 1");
    refuse(&text[..text.len() / 2], "line");
    refuse(&text.replacen("\"facts\"", "\"fatcs\"", 1), "unknown field `fatcs`");
    refuse("[]", "line 1");
}
