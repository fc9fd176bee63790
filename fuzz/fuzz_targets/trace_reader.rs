//! Any text is read or refused, never a panic; a trace that is read is written and read back the
//! same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use planner::Trace;

fuzz_target!(|text: &str| {
    if let Ok(trace) = Trace::from_json("fuzz".as_ref(), text) {
        let written = trace.to_json();
        assert_eq!(Trace::from_json("written".as_ref(), &written).unwrap(), trace, "{written}");
    }
});
