#![no_main]
use sim::serving::{RecordedRun, TableText};

libfuzzer_sys::fuzz_target!(|texts: [String; 2]| {
    let [engine, requests] = [0, 1].map(|index: usize| TableText { file: "fuzz", text: &texts[index] });
    let _ = RecordedRun::read(engine, requests);
});
