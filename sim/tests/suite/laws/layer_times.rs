//! Tables of layer times with any content.

use crate::cases::cases;
use proptest::prelude::*;
use sim::serving::{Batch, LayerTimes, PrefillChunk, StepPrices};

/// Rows of whole numbers below `most`, with a time at the end.
fn rows(columns: usize, most: u64) -> impl Strategy<Value = Vec<(Vec<u64>, f64)>> {
    prop::collection::vec((prop::collection::vec(0..most, columns), 0.0..1e4f64), 1..30)
}

fn table(header: &str, name: &str, rows: &[(Vec<u64>, f64)]) -> String {
    let mut text = format!("{header}\n");
    for (keys, time) in rows {
        let keys: Vec<_> = keys.iter().map(u64::to_string).collect();
        text += &format!("{name}{},{time}\n", keys.join(","));
    }
    text
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn any_table_that_is_read_prices_any_batch_and_its_lines_hold_where_they_are_asked_for(
        dense in rows(1, 3000), sampled in rows(1, 300), attention in rows(4, 4),
        news in prop::collection::vec((1u64..3000, 0u64..3000), 0..4),
        decodes in 1u64..300, context in 1u64..5000,
    ) {
        let tables = [
            table("layer,tokens,time_us", "qkv_proj,", &dense),
            table("layer,sequences,time_us", "lm_head,", &sampled),
            table("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", "", &attention),
        ];
        let alone = attention.iter().filter(|(keys, _)| keys[0] == 0 && keys[2] > 0);
        let mut contexts: Vec<u64> = alone.map(|(keys, _)| keys[3]).collect();
        contexts.sort_unstable();
        contexts.dedup();
        let read = LayerTimes::read(&tables[0], &tables[1], &tables[2], 32);
        prop_assert_eq!(read.is_ok(), contexts.len() >= 2);
        let Ok(mut times) = read else { return Ok(()) };
        let chunks: Vec<_> = news.into_iter().map(|(new, past)| PrefillChunk { new, past }).collect();
        let decode_tokens = decodes * context;
        let time = times.step(&Batch { chunks: &chunks, decodes, decode_tokens, sampled: decodes }).unwrap();
        prop_assert!(time.to_seconds().get().is_finite());
        let line = times.decode(decodes, decode_tokens).unwrap();
        prop_assert!(line.from <= decode_tokens && decode_tokens < line.until, "{:?}", line);
    }
}
