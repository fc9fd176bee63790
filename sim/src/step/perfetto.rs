//! A trace as a Chrome trace-event file, which `ui.perfetto.dev` and `chrome://tracing` open.

use planner::{StepSpan, Trace, TraceEvent};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The text of a Chrome trace-event file with the traces side by side. Each trace is a process,
/// with one track for its steps and one per lane. Times are microseconds with nanosecond digits.
///
/// Format: "Trace Event Format", complete (`X`) and metadata (`M`) events.
pub fn perfetto(traces: &[&Trace]) -> String {
    let events: Vec<_> =
        (1..).zip(traces).flat_map(|(process, trace)| process_events(process, trace)).collect();
    json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
}

fn process_events(process: u32, trace: &Trace) -> Vec<Value> {
    // Lanes in the order of their first events: the device that begins is on top.
    let mut tracks: BTreeMap<&str, u32> = BTreeMap::new();
    for event in &trace.events {
        let next = tracks.len() as u32 + 1;
        tracks.entry(&event.lane).or_insert(next);
    }
    let recorder = serde_json::to_value(trace.recorder).unwrap_or_default();
    let recorder = recorder.as_str().unwrap_or_default();
    let name = format!("{recorder}: {} on {}", trace.model, trace.machine);
    let mut events =
        vec![metadata(process, 0, "process_name", &name), metadata(process, 0, "thread_name", "steps")];
    events.extend(tracks.iter().map(|(lane, &track)| metadata(process, track, "thread_name", lane)));
    events.extend((0..).zip(&trace.steps).map(|(index, span)| step(process, index, span)));
    events.extend(trace.events.iter().map(|event| task(process, tracks[event.lane.as_str()], event)));
    events
}

/// The event that names a process or one of its tracks.
pub(crate) fn metadata(process: u32, track: u32, key: &str, name: &str) -> Value {
    json!({ "ph": "M", "pid": process, "tid": track, "name": key, "args": { "name": name } })
}

fn step(process: u32, index: u32, span: &StepSpan) -> Value {
    let step = &span.step;
    let name = format!("{}{} {index}", if span.draft { "draft " } else { "" }, step.phase);
    let args = json!({ "batch": step.batch, "new_tokens": step.new_tokens, "past_tokens": step.past_tokens });
    complete(process, 0, &name, (span.start_ns, span.end_ns), args)
}

fn task(process: u32, track: u32, event: &TraceEvent) -> Value {
    let args = json!({
        "step": event.step,
        "task": event.task,
        "layer": event.layer,
        "bytes": event.bytes,
        "flop": event.flop,
    });
    complete(process, track, &event.name, (event.start_ns, event.end_ns), args)
}

/// A complete event on a track. Times are in nanoseconds.
pub(crate) fn complete(process: u32, track: u32, name: &str, (start, end): (u64, u64), args: Value) -> Value {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    json!({
        "ph": "X", "pid": process, "tid": track, "name": name,
        "ts": micros(start), "dur": micros(end - start), "args": args,
    })
}
