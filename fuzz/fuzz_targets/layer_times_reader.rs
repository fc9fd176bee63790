#![no_main]
use scenarios::Model;
use sim::serving::{Batch, LayerRanks, LayerTables, LayerTimes, PrefillChunk, StepPrices, TableText};

libfuzzer_sys::fuzz_target!(|texts: [String; 4]| {
    let table = |index: usize| TableText { file: "fuzz", text: &texts[index] };
    let [dense, per_sequence, attention] = [0, 1, 2].map(table);
    let tables =
        LayerTables { dense, per_sequence, attention, experts: None, all_reduce: Some(table(3)) };
    let model = Model::preset("llama-3.1-8b").unwrap();
    let ranks = LayerRanks { tensor: if texts[3].is_empty() { 1 } else { 2 }, experts: 1 };
    if let Ok(mut times) = LayerTimes::read(&tables, &model, ranks) {
        let chunks = [PrefillChunk { new: 100, past: 16 }];
        times.step(&Batch { chunks: &chunks, decodes: 3, decode_tokens: 700, sampled: 4 }).unwrap();
        let line = times.decode(3, 700).unwrap();
        assert!(line.from <= 700 && 700 < line.until);
    }
});
