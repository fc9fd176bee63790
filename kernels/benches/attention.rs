//! Attention of prompts with each instruction set of this CPU: 16 query heads over 4 key/value
//! heads, with heads of 64 and of 128 values, a bf16 cache, and one core.
//!
//! `cargo bench -p fulcrum-kernels --bench attention`. All paths take turns. Printed is the median
//! of a path's rounds in GFLOP/s: 4·heads·head size for each token and each position that it sees.
#![allow(missing_docs)]

#[path = "../tests/noise/mod.rs"]
mod noise;

use hwprofiles::DType;
use kernels::{
    AttentionOperands, Buffer, KvCacheMut, KvShape, KvSpan, Path, Pool, Scores, Scratch, StridedRows,
    StridedRowsMut, affinity, attention,
};
use noise::noise;
use std::time::Instant;

const HEADS: usize = 16;
const KV_HEADS: usize = 4;
const ROUNDS: usize = 15;

fn main() {
    let core = &affinity::available_cores()[..1];
    let vectors = |path: &Path| [Path::Avx2, Path::Avx512].contains(path);
    let pools: Vec<Pool> = Path::supported()
        .into_iter()
        .filter(vectors)
        .map(|path| Pool::new(core).expect("our core").with_path(path))
        .collect();
    for head_dim in [64, 128] {
        for tokens in [128, 512, 2048] {
            prompt(&pools, head_dim, tokens);
        }
    }
}

fn prompt(pools: &[Pool], head_dim: usize, tokens: usize) {
    let shape = KvShape { dtype: DType::Bf16, sequences: 1, kv_heads: KV_HEADS, capacity: tokens, head_dim };
    let (width, kv_width) = (HEADS * head_dim, KV_HEADS * head_dim);
    let mut sides = [0, 1].map(|_| Buffer::new(shape.bytes()).expect("memory"));
    let [keys, values] = &mut sides;
    let mut cache = KvCacheMut::new(shape, keys.bytes_mut(), values.bytes_mut()).expect("the right size");
    let spans = [KvSpan { sequence: 0, past: 0, new: tokens }];
    cache.append(&pools[0], &spans, &noise(tokens * kv_width, 1), &noise(tokens * kv_width, 2), kv_width);
    let (q, mut out) = (noise(tokens * width, 3), vec![0.0; tokens * width]);
    let needed = attention::scratch_bytes(1, HEADS, shape, 1);
    let mut scratch = Scratch::unaccounted(needed).expect("memory");
    let scores = Scores::scaled(1.0 / (head_dim as f32).sqrt());
    let mut times = vec![Vec::new(); pools.len()];
    for _ in 0..ROUNDS {
        for (pool, times) in pools.iter().zip(&mut times) {
            let start = Instant::now();
            let operands = AttentionOperands {
                heads: HEADS,
                scores,
                out: StridedRowsMut::new(&mut out, width),
                q: StridedRows::new(&q, width),
                sinks: &[],
                cache: cache.as_cache(),
                new: None,
                spans: &spans,
            };
            attention(pool, operands, &mut scratch);
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let flop = (4 * HEADS * head_dim * tokens * (tokens + 1) / 2) as f64;
    for (pool, times) in pools.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let rate = flop / times[ROUNDS / 2] * 1e-9;
        println!("heads of {head_dim}, {tokens} tokens, {}: {rate:.1} GFLOP/s", pool.path());
    }
}
