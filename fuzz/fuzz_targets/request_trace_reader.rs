#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(trace) = scenarios::RequestTrace::new(data, "fuzz") {
        trace.for_each(drop);
    }
});
