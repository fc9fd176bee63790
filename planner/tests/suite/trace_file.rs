//! Laws of the trace file.

use hwprofiles::{Bytes, Flop};
use planner::{Recorder, StepSpan, Trace, TraceEvent};
use proptest::prelude::*;
use scenarios::Step;
use std::path::Path;

fn event(step: u32, task: u32, start_ns: u64, length: u64) -> TraceEvent {
    TraceEvent {
        step,
        task,
        layer: (task > 0).then_some(task),
        name: "fetch qkv".to_owned(),
        lane: "cpu \"0\"".to_owned(),
        start_ns,
        end_ns: start_ns + length,
        bytes: Bytes::new(length * 3),
        flop: Flop::new(u128::from(length) * 1_000_003),
    }
}

/// Steps of these lengths with two events each.
fn trace(lengths: &[u64]) -> Trace {
    let mut now = 0;
    let mut span = |&length: &u64| {
        let start_ns = now;
        now += length;
        StepSpan::new(Step::decode(2, length), start_ns, now)
    };
    let steps: Vec<_> = lengths.iter().map(&mut span).collect();
    let events = steps.iter().enumerate().flat_map(|(index, span)| {
        [0, 3].map(|task| event(index as u32, task, span.start_ns, span.end_ns - span.start_ns))
    });
    Trace {
        recorder: Recorder::Simulated,
        machine: "m".to_owned(),
        model: "x\n".to_owned(),
        plan: "p".to_owned(),
        events: events.collect(),
        steps,
    }
}

fn read(text: &str) -> Result<Trace, String> {
    Trace::from_json(Path::new("trace.json"), text).map_err(|error| error.to_string())
}

proptest! {
    #[test]
    fn a_trace_reads_back_as_it_was(lengths in prop::collection::vec(0u64..1 << 40, 0..6)) {
        let trace = trace(&lengths);
        let text = trace.to_json();
        prop_assert_eq!(&read(&text).unwrap(), &trace);
        prop_assert_eq!(read(&text).unwrap().to_json(), text);
    }

    #[test]
    fn a_changed_character_is_read_or_refused_but_never_a_panic(place in 0.0..1.0f64, character in " -~") {
        let mut text = trace(&[5, 7]).to_json();
        let at = (text.len() as f64 * place) as usize;
        text.replace_range(at..at + 1, &character);
        if let Ok(trace) = read(&text) {
            prop_assert_eq!(read(&trace.to_json()).unwrap(), trace);
        }
    }

    #[test]
    fn a_truncated_trace_is_refused(cut in 0.0..1.0f64) {
        let text = trace(&[5, 7]).to_json();
        let end = (text.trim_end().len() as f64 * cut) as usize;
        prop_assert!(read(&text[..end]).unwrap_err().starts_with("trace.json:"));
    }
}

#[test]
fn a_file_holds_one_event_per_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let trace = trace(&[5, 7]);
    trace.write(&path).unwrap();
    assert_eq!(Trace::read(&path).unwrap(), trace);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("fetch qkv")).count(), 4);
}

#[test]
fn a_bad_trace_is_refused_with_its_line_and_what_is_wrong() {
    let check = |change: &dyn Fn(&mut Trace), expect: &str| {
        let mut trace = trace(&[5, 7]);
        change(&mut trace);
        let error = read(&trace.to_json()).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    // Line 1 is the brace, 2–5 the header, 6 "steps", 7 and 8 two steps, 9 the bracket, 10
    // "events", 11 and on the events.
    check(&|t| t.events[1].start_ns = 6, "trace.json:12:5:");
    check(
        &|t| (t.events[3].start_ns, t.events[3].end_ns) = (9, 8),
        "'fetch qkv' ends at 8 ns, before its start",
    );
    check(&|t| t.events.swap(0, 1), "events are ordered by step, then task");
    check(&|t| t.steps[1].start_ns = 4, "trace.json:8:5:");
    check(&|t| t.steps[0].start_ns = 6, "a step ends at 5 ns");
    check(&|t| t.steps.truncate(1), "trace.json:12:5: not a trace: there is no step 1, only 1");
    let check_text = |from: &str, to: &str, expect: &str| {
        let error = read(&trace(&[5]).to_json().replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    check_text("\"plan\"", "\"plans\"", "trace.json:5:9: not a trace: unknown field `plans`");
    check_text("15 B", "15", "B, kB");
    check_text("simulated", "dreamt", "unknown variant `dreamt`");
    let missing = Trace::read(Path::new("no/such/trace.json")).unwrap_err().to_string();
    assert!(missing.starts_with("no/such/trace.json: cannot be read"), "{missing}");
}
