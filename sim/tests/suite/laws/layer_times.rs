//! Tables of layer times with any content.

use crate::cases::cases;
use proptest::prelude::*;
use scenarios::Model;
use sim::SimTime;
use sim::serving::{Batch, LayerRanks, LayerTables, LayerTimes, PrefillChunk, StepPrices, TableText};

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

fn read_tables(texts: &[String; 3]) -> [TableText<'_>; 3] {
    texts.each_ref().map(|text| TableText { file: "t.csv", text })
}

const DENSE: &str = "layer,tokens,time_us\nqkv_proj,1,10\nqkv_proj,1000,10\n";
const SAMPLED: &str = "layer,sequences,time_us\nlm_head,1,100\n";
const ATTENTION: &str = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,5\n0,0,1,4096,5\n";

/// The time of a decode step of `decodes` sequences, in microseconds.
fn decode_time(
    model: &str,
    ranks: LayerRanks,
    experts: Option<&str>,
    sums: Option<&str>,
    decodes: u64,
) -> f64 {
    let texts = [DENSE, SAMPLED, ATTENTION].map(str::to_owned);
    let [dense, per_sequence, attention] = read_tables(&texts);
    let table = |text| TableText { file: "t.csv", text };
    let (experts, all_reduce) = (experts.map(table), sums.map(table));
    let tables = LayerTables { dense, per_sequence, attention, experts, all_reduce };
    let mut times = LayerTimes::read(&tables, &Model::preset(model).unwrap(), ranks).unwrap();
    let batch = Batch { chunks: &[], decodes, decode_tokens: decodes * 100, sampled: decodes };
    1e6 * times.step(&batch).unwrap().to_seconds().get()
}

#[test]
fn ranks_that_share_a_layer_add_up_twice_in_it_and_once_for_the_embedding() {
    let sums = "ranks,bytes,time_us\n2,1000,7\n2,1000000,7\n4,1000,99\n";
    let alone = decode_time("llama-3.1-8b", LayerRanks { tensor: 1, experts: 1 }, None, Some(sums), 8);
    let shared = decode_time("llama-3.1-8b", LayerRanks { tensor: 2, experts: 1 }, None, Some(sums), 8);
    assert!((alone - (32.0 * 15.0 + 100.0)).abs() < 1e-3, "{alone}");
    assert!((shared - alone - 65.0 * 7.0).abs() < 1e-3, "{shared} {alone}");
}

#[test]
fn engines_that_share_experts_touch_their_share_for_the_tokens_of_all() {
    // The time is the number of touched experts.
    let experts = "tokens,activated_experts,time_us\n1,0,0\n1,128,128\n4096,0,0\n4096,128,128\n";
    let sums = "ranks,bytes,time_us\n2,1,7\n2,100000000,7\n";
    let model = "qwen3-30b-a3b";
    let others = 48.0 * 15.0 + 100.0;
    let one = decode_time(model, LayerRanks { tensor: 1, experts: 1 }, Some(experts), None, 1);
    assert!((one - others - 48.0 * 8.0).abs() < 1e-3, "{one}");
    let all = decode_time(model, LayerRanks { tensor: 1, experts: 1 }, Some(experts), None, 1000);
    assert!((all - others - 48.0 * 128.0).abs() < 0.1, "{all}");
    let half = decode_time(model, LayerRanks { tensor: 1, experts: 2 }, Some(experts), Some(sums), 1000);
    assert!((half - others - 48.0 * (64.0 + 7.0)).abs() < 0.1, "{half}");
}

#[test]
fn a_table_that_is_missing_or_wrong_is_named() {
    let texts = [DENSE, SAMPLED, "prefill_chunk,kv_prefill,n_decode,time_us\n0,0,1,2\n"].map(str::to_owned);
    let read = |model: &str, tensor, texts: &[String; 3]| {
        let [dense, per_sequence, attention] = read_tables(texts);
        let tables = LayerTables { dense, per_sequence, attention, experts: None, all_reduce: None };
        let ranks = LayerRanks { tensor, experts: 1 };
        LayerTimes::read(&tables, &Model::preset(model).unwrap(), ranks).unwrap_err().to_string()
    };
    assert!(read("llama-3.1-8b", 1, &texts).starts_with("t.csv:1: kv_decode: there is no such column"));
    let whole = [DENSE, SAMPLED, ATTENTION].map(str::to_owned);
    assert!(read("qwen3-30b-a3b", 1, &whole).contains("activated_experts"));
    assert!(read("llama-3.1-8b", 2, &whole).contains("ranks, bytes"));
    let wrong = [DENSE.replace("1000,10", "1000,-1"), SAMPLED.to_owned(), ATTENTION.to_owned()];
    assert_eq!(
        read("llama-3.1-8b", 1, &wrong),
        "t.csv:3: time_us: '-1' is not a number from 0 to 10000000000"
    );
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
        let [dense, per_sequence, attention] = read_tables(&tables);
        let tables = LayerTables { dense, per_sequence, attention, experts: None, all_reduce: None };
        let ranks = LayerRanks { tensor: 1, experts: 1 };
        let read = LayerTimes::read(&tables, &Model::preset("llama-3.1-8b").unwrap(), ranks);
        prop_assert_eq!(read.is_ok(), contexts.len() >= 2);
        let Ok(mut times) = read else { return Ok(()) };
        let chunks: Vec<_> = news.into_iter().map(|(new, past)| PrefillChunk { new, past }).collect();
        let decode_tokens = decodes * context;
        let time = times.step(&Batch { chunks: &chunks, decodes, decode_tokens, sampled: decodes }).unwrap();
        prop_assert!(time.to_seconds().get().is_finite());
        let line = times.decode(decodes, decode_tokens).unwrap();
        prop_assert!(line.from <= decode_tokens && decode_tokens < line.until, "{:?}", line);
        // The times of the layers add up to that of the step, but for its rounding up.
        let batch = Batch { chunks: &chunks, decodes, decode_tokens, sampled: decodes };
        let sum: f64 = times.by_layer(&batch).iter().map(|layer| layer.time.get()).sum();
        // Times of a few nanoseconds are rounded up by as much.
        let saturated = time == SimTime::MAX;
        prop_assert!(saturated || (sum - time.to_seconds().get()).abs() < 1e-9 + 1e-2 * sum, "{sum}");
    }
}
