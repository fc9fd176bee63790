//! Tables for a terminal, a document and a spreadsheet.

use crate::sample;
use hwprofiles::{Bytes, Flop};
use planner::{Recorder, StepSpan, Trace, TraceEvent};
use reports::{Configuration, PlacementMap, Validation};

/// Microseconds of a task in a prefill step and in a decode step, by name and lane.
type Durations = [(&'static str, &'static str, [u64; 2]); 3];

const PREDICTED: Durations = [
    ("qkv_proj", "cpu", [30_000, 2_000]),
    ("fetch ffn_up", "dram->loopback", [10_000, 4_000]),
    ("up_proj", "loopback", [60_000, 5_000]),
];

/// A run with one task after another, made by hand, so that the tables do not depend on the cost
/// model.
fn trace(output_tokens: u64, recorder: Recorder, durations: Durations) -> Trace {
    let (mut now, mut steps, mut events) = (0, Vec::new(), Vec::new());
    for (index, step) in
        planner::steps(&scenarios::Workload::new(2, 64, output_tokens), 64).into_iter().enumerate()
    {
        let start_ns = now;
        let phase = usize::from(step.new_tokens == 1);
        for (task, (name, lane, micros)) in durations.into_iter().enumerate() {
            let end_ns = now + 1000 * micros[phase];
            let (name, lane) = (name.to_owned(), lane.to_owned());
            let (step, task, layer) = (index as u32, task as u32, Some(0));
            let (bytes, flop) = (Bytes::ZERO, Flop::ZERO);
            events.push(TraceEvent { step, task, layer, name, lane, start_ns: now, end_ns, bytes, flop });
            now = end_ns;
        }
        steps.push(StepSpan::new(step, start_ns, now));
    }
    let [machine, model, plan] = ["machine", "model", "plan"].map(str::to_owned);
    Trace { recorder, machine, model, plan, steps, events }
}

/// A configuration whose three repeats took `percents` of the predicted times.
fn configuration(name: &str, placement: &str, output_tokens: u64, percents: [u64; 3]) -> Configuration {
    let slowed = |percent: u64| {
        PREDICTED.map(|(name, lane, micros)| (name, lane, micros.map(|it| it * percent / 100)))
    };
    let predicted = trace(output_tokens, Recorder::Simulated, PREDICTED);
    let measured = percents.map(|percent| trace(output_tokens, Recorder::Measured, slowed(percent)));
    let mut label = sample::label(placement, 2, 64);
    (label.name, label.output_tokens) = (name.to_owned(), output_tokens);
    let (machine, model) = (sample::machine(), sample::model());
    let map = PlacementMap::from_placement(&machine, &sample::placement(&machine, &model, "all-cpu"));
    Configuration::from_traces(label, &predicted, &measured, Vec::new(), map).unwrap()
}

fn validation() -> Validation {
    let mut validation = sample::validation(Vec::new());
    validation.configurations = vec![
        configuration("one-token", "all-cpu", 1, [100, 110, 104]),
        configuration("a name | with *marks*, longer than its column", "mixed", 9, [125, 125, 125]),
        configuration("too-slow", "streamed", 9, [80, 90, 70]),
        configuration("exact", "planned", 9, [99, 100, 101]),
    ];
    validation
}

#[test]
fn the_table_for_a_terminal() {
    insta::assert_snapshot!(validation().to_text());
}

#[test]
fn the_table_for_a_document() {
    insta::assert_snapshot!(validation().to_markdown());
}

#[test]
fn the_table_for_a_spreadsheet() {
    insta::assert_snapshot!(validation().to_csv());
}

#[test]
fn the_operators_of_one_configuration() {
    let comparison = &validation().configurations[2].comparison;
    insta::assert_snapshot!(comparison.to_text());
    insta::assert_snapshot!(comparison.to_csv());
}

#[test]
fn no_line_for_a_terminal_is_longer_than_80_columns() {
    let validation = validation();
    let comparisons = validation.configurations.iter().map(|it| it.comparison.to_text());
    for text in comparisons.chain([validation.to_text()]) {
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= 80, "{longest}");
    }
}

#[test]
fn a_validation_of_nothing_is_a_table_of_nothing() {
    let empty = sample::validation(Vec::new());
    assert_eq!((empty.summary().ttft, empty.shown_configuration()), (None, None));
    assert_eq!(empty.to_text().lines().count(), 2);
    assert_eq!(empty.to_csv().lines().count(), 1);
}
