//! The KV cache and attention.

use super::call::{KernelCall, count, extent};
use super::slice::GpuSlice;
use crate::cpu::Scores;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 128;
/// Query heads that a block of `decode` computes.
const HEADS: usize = 8;
/// Positions of a tile of `decode`: what splits are whole numbers of.
const POSITIONS: usize = 64;
/// Rows of a block of `prefill`.
const ROWS: usize = 64;
/// The most values of a head, of which there must be an even number: what fits the registers of a block.
pub const MOST_VALUES: usize = 256;

/// A paged KV cache of bf16: keys and values `[page][kv head][position][head dim]`, and which page holds which
/// positions of a sequence. A [`crate::KvCache`] is one of a page per sequence.
#[derive(Debug, Clone, Copy)]
pub struct PagedCache {
    /// Keys.
    pub keys: GpuSlice<u16>,
    /// Values.
    pub values: GpuSlice<u16>,
    /// `[sequence][pages_per_sequence]`; entries beyond a sequence's length are not read.
    pub table: GpuSlice<i32>,
    /// Pages that a sequence can have.
    pub pages_per_sequence: usize,
    /// Positions of a page.
    pub page: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Values of one head.
    pub head_dim: usize,
}

impl PagedCache {
    fn sequences(&self) -> usize {
        self.table.len().checked_div(self.pages_per_sequence).unwrap_or(0)
    }

    fn check(&self, heads: usize) {
        let Self { head_dim, kv_heads, .. } = *self;
        assert!(
            head_dim.is_multiple_of(2) && (2..=MOST_VALUES).contains(&head_dim),
            "heads of {head_dim} values"
        );
        assert!(heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads over {kv_heads} KV heads");
        // Eight values are loaded at once where heads are whole eights, else two.
        let at_once = if head_dim.is_multiple_of(8) { 16 } else { 4 };
        self.keys.aligned(at_once, "keys");
        self.values.aligned(at_once, "values");
        assert!(self.page > 0 && self.keys.len() == self.values.len());
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AppendArguments {
    keys: u64,
    values: u64,
    to_keys: u64,
    to_values: u64,
    pages: u64,
    sequences: u64,
    positions: u64,
    stride: i32,
    kv_heads: i32,
    head_dim: i32,
    page: i32,
    pages_per_sequence: i32,
    unused: i32,
}

/// Writes rows of keys and values, `stride` apart, to where `sequences` and `positions` of the same length say.
pub fn append(
    cache: PagedCache,
    keys: GpuSlice<u16>,
    values: GpuSlice<u16>,
    stride: usize,
    sequences: GpuSlice<i32>,
    positions: GpuSlice<i32>,
) -> KernelCall {
    let rows = sequences.len();
    let read = extent(rows, stride, cache.kv_heads * cache.head_dim);
    let arguments = AppendArguments {
        keys: keys.holding(read, "keys"),
        values: values.holding(read, "values"),
        to_keys: cache.keys.address,
        to_values: cache.values.address,
        pages: cache.table.address,
        sequences: sequences.address,
        positions: positions.holding(rows, "positions"),
        stride: count(stride),
        kv_heads: count(cache.kv_heads),
        head_dim: count(cache.head_dim),
        page: count(cache.page),
        pages_per_sequence: count(cache.pages_per_sequence),
        unused: 0,
    };
    KernelCall::new(GpuProgram::Cache, "append", [rows, 1, 1], 256, arguments)
}

/// What a decode step's attention reads and writes besides the cache: a row of `heads` heads per sequence.
#[derive(Debug, Clone, Copy)]
pub struct DecodeStep {
    /// Queries and how far apart their rows are.
    pub q: (GpuSlice<u16>, usize),
    /// The result, likewise.
    pub out: (GpuSlice<u16>, usize),
    /// Query heads.
    pub heads: usize,
    /// Positions that each sequence's token sees, its own included; 0 where a sequence has none, which gives 0.
    pub lengths: GpuSlice<i32>,
    /// The largest length there may be.
    pub longest: usize,
    /// Positions per block, a multiple of 64: fewer make more blocks.
    pub chunk: usize,
    /// Room for `sequences × heads × splits × (head dim + 2)` values, splits = ⌈longest / chunk⌉; of a window, no longer
    /// than that.
    pub scratch: GpuSlice<f32>,
    /// What becomes of them, and which positions are seen.
    pub scores: Scores,
}

/// Blocks that fill any GPU twice over: more splits would only add what joins them.
const ENOUGH_BLOCKS: usize = 512;
/// Positions that a block has at least, or its beginning and end outweigh them.
const LEAST_CHUNK: usize = 2 * POSITIONS;

/// Positions per block for [`DecodeStep`]: few where there are few sequences.
pub fn decode_chunk(sequences: usize, kv_heads: usize, longest: usize) -> usize {
    let splits = ENOUGH_BLOCKS.div_ceil((sequences * kv_heads).max(1));
    longest.div_ceil(splits).next_multiple_of(POSITIONS).max(LEAST_CHUNK)
}

/// Bytes of scratch that [`DecodeStep`] with chunks of [`decode_chunk`] takes at most, for up to so many sequences and
/// positions.
pub fn decode_scratch(
    sequences: usize,
    [heads, kv_heads]: [usize; 2],
    head_dim: usize,
    longest: usize,
) -> usize {
    let splits = (sequences * longest.div_ceil(LEAST_CHUNK)).min(ENOUGH_BLOCKS / kv_heads + 1 + sequences);
    splits * heads * (head_dim + 2) * size_of::<f32>()
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DecodeArguments {
    q: u64,
    keys: u64,
    values: u64,
    pages: u64,
    lengths: u64,
    sums: u64,
    scales: u64,
    q_stride: i32,
    heads: i32,
    kv_heads: i32,
    page: i32,
    pages_per_sequence: i32,
    chunk: i32,
    splits: i32,
    window: i32,
    scale: f32,
    cap: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct CombineArguments {
    sums: u64,
    scales: u64,
    out: u64,
    out_stride: i32,
    splits: i32,
}

/// Attention of one new token per sequence: two calls, one after the other.
pub fn decode(cache: PagedCache, step: DecodeStep) -> [KernelCall; 2] {
    cache.check(step.heads);
    let DecodeStep { heads, chunk, longest, scores, .. } = step;
    assert!(chunk > 0 && chunk.is_multiple_of(POSITIONS), "{chunk} positions per block");
    assert!(longest <= cache.page * cache.pages_per_sequence, "{longest} positions");
    let (sequences, head_dim) = (step.lengths.len(), cache.head_dim);
    let splits = scores.seen(longest).div_ceil(chunk);
    assert!(sequences <= cache.sequences(), "{sequences} sequences");
    let parts = sequences * heads * splits;
    step.scratch.holding(parts * (head_dim + 2), "scratch");
    let (sums, scales) = (step.scratch.address, step.scratch.from(parts * head_dim).address);
    let (q, q_stride) = step.q;
    let arguments = DecodeArguments {
        q: q.holding(extent(sequences, q_stride, heads * head_dim), "q"),
        keys: cache.keys.address,
        values: cache.values.address,
        pages: cache.table.address,
        lengths: step.lengths.address,
        sums,
        scales,
        q_stride: count(q_stride),
        heads: count(heads),
        kv_heads: count(cache.kv_heads),
        page: count(cache.page),
        pages_per_sequence: count(cache.pages_per_sequence),
        chunk: count(chunk),
        splits: count(splits),
        window: window(scores),
        scale: scores.scale,
        cap: scores.cap.unwrap_or(0.0),
    };
    let program = GpuProgram::Decode { head_dim };
    let pieces = cache.kv_heads * (heads / cache.kv_heads).div_ceil(HEADS);
    let decode = KernelCall::new(program, "decode", [splits, pieces, sequences], THREADS, arguments);
    let (out, out_stride) = step.out;
    let out = out.holding(extent(sequences, out_stride, heads * head_dim), "out");
    let arguments =
        CombineArguments { sums, scales, out, out_stride: count(out_stride), splits: count(splits) };
    [decode, KernelCall::new(program, "combine", [heads, sequences, 1], THREADS, arguments)]
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct PrefillArguments {
    q: u64,
    out: u64,
    keys: u64,
    values: u64,
    pages: u64,
    spans: u64,
    q_stride: i32,
    out_stride: i32,
    heads: i32,
    kv_heads: i32,
    page: i32,
    pages_per_sequence: i32,
    window: i32,
    scale: f32,
    cap: f32,
    unused: i32,
}

/// Causal attention of new tokens whose keys are in the cache. `spans` has four numbers each: the sequence, its positions
/// before, its new tokens (at most `most_new`), and their first row.
pub fn prefill(
    cache: PagedCache,
    heads: usize,
    scores: Scores,
    (q, q_stride): (GpuSlice<u16>, usize),
    (out, out_stride): (GpuSlice<u16>, usize),
    spans: GpuSlice<i32>,
    most_new: usize,
) -> KernelCall {
    cache.check(heads);
    // Two values are read and written at once.
    assert!(q_stride.is_multiple_of(2) && out_stride.is_multiple_of(2), "strides {q_stride}, {out_stride}");
    assert!(q_stride >= heads * cache.head_dim && out_stride >= heads * cache.head_dim);
    let arguments = PrefillArguments {
        q: q.aligned(4, "q"),
        out: out.aligned(4, "out"),
        keys: cache.keys.address,
        values: cache.values.address,
        pages: cache.table.address,
        spans: spans.address,
        q_stride: count(q_stride),
        out_stride: count(out_stride),
        heads: count(heads),
        kv_heads: count(cache.kv_heads),
        page: count(cache.page),
        pages_per_sequence: count(cache.pages_per_sequence),
        window: window(scores),
        scale: scores.scale,
        cap: scores.cap.unwrap_or(0.0),
        unused: 0,
    };
    let rows = most_new * (heads / cache.kv_heads);
    let grid = [rows.div_ceil(ROWS), cache.kv_heads, spans.len() / 4];
    KernelCall::new(GpuProgram::Prefill { head_dim: cache.head_dim }, "prefill", grid, THREADS, arguments)
}

/// The positions of a window, as kernels take it: more than any sequence has where there is none.
fn window(scores: Scores) -> i32 {
    scores.window.map_or(i32::MAX, count)
}
