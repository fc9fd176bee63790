#![no_main]
libfuzzer_sys::fuzz_target!(|texts: [String; 2]| {
    let _ = sim::serving::RecordedRun::read(&texts[0], "fuzz", &texts[1]);
});
