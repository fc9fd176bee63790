#![no_main]
libfuzzer_sys::fuzz_target!(|texts: [String; 2]| {
    let _ = sim::serving::Recorded::read(&texts[0], "fuzz", &texts[1]);
});
