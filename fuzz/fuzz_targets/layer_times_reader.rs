#![no_main]
use sim::serving::{Batch, LayerTimes, PrefillChunk, StepPrices};

libfuzzer_sys::fuzz_target!(|tables: [String; 3]| {
    let [dense, sampled, attention] = &tables;
    if let Ok(mut times) = LayerTimes::read(dense, sampled, attention, 32) {
        let chunks = [PrefillChunk { new: 100, past: 16 }];
        times.step(&Batch { chunks: &chunks, decodes: 3, decode_tokens: 700, sampled: 4 }).unwrap();
        let line = times.decode(3, 700).unwrap();
        assert!(line.from <= 700 && 700 < line.until);
    }
});
