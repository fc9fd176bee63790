//! Calls for the KV cache and attention.

use super::call::{KernelCall, count, extent};
use super::rows::Rotation;
use super::slice::GpuSlice;
use crate::cpu::Scores;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 128;
/// Query heads that one block of `decode` computes.
const HEADS: usize = 16;
/// Positions of a tile of `decode`. A split is a whole number of tiles.
const POSITIONS: usize = 64;
/// Rows of a block of `prefill`.
const ROWS: usize = 64;
/// The most values of a head, so that it fits the registers of a block. The number must be even.
pub const MOST_VALUES: usize = 256;

/// A paged KV cache of bf16: keys and values `[page][kv head][position][head dim]`, and a table of
/// the pages that hold a sequence's positions. A [`crate::KvCache`] in bf16 has the same layout
/// with one page per sequence.
#[derive(Debug, Clone, Copy)]
pub struct PagedCache {
    /// Keys.
    pub keys: GpuSlice<u16>,
    /// Values.
    pub values: GpuSlice<u16>,
    /// `[sequence][pages_per_sequence]`; entries beyond a sequence's length are not read.
    pub table: GpuSlice<i32>,
    /// The most pages of a sequence.
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
        // Where a head is a whole number of eights, kernels load eight values at once, otherwise
        // two.
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
    lengths: u64,
    stride: i32,
    kv_heads: i32,
    head_dim: i32,
    page: i32,
    pages_per_sequence: i32,
    unused: i32,
}

/// Keys and values of new tokens: rows of `[kv head][head dim]`, `stride` values apart.
#[derive(Debug, Clone, Copy)]
pub struct GpuRows {
    /// Keys.
    pub keys: GpuSlice<u16>,
    /// Values.
    pub values: GpuSlice<u16>,
    /// The distance of the rows.
    pub stride: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct EnterArguments {
    qkv: u64,
    of_queries: u64,
    of_keys: u64,
    cosines: u64,
    sines: u64,
    positions: u64,
    sequences: u64,
    to_keys: u64,
    to_values: u64,
    pages: u64,
    lengths: u64,
    stride: i32,
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    half: i32,
    page: i32,
    pages_per_sequence: i32,
    epsilon: f32,
}

/// Rows of queries, keys and values on their way to attention.
#[derive(Debug, Clone, Copy)]
pub struct EnteringRows {
    /// Rows of `heads` queries, the cache's number of keys and as many values.
    pub qkv: GpuSlice<u16>,
    /// The distance of the rows.
    pub stride: usize,
    /// Query heads.
    pub heads: usize,
    /// Weights of the norms of each query and of each key, and ε.
    pub norms: Option<([GpuSlice<f32>; 2], f32)>,
    /// How queries and keys are rotated: halves with one another, not neighbours.
    pub rotation: Option<Rotation>,
}

impl EnteringRows {
    /// Whether a rotation, or none, is one that [`enter_heads`] knows for heads of that size.
    pub fn knows(rotation: Option<Rotation>, head_dim: usize) -> bool {
        let even = |rotation: Rotation| !rotation.interleaved && rotation.half.is_multiple_of(2);
        head_dim.is_multiple_of(2) && head_dim <= MOST_VALUES && rotation.is_none_or(even)
    }
}

/// Normalises the queries and keys of each row head by head, rotates them, and writes keys and
/// values to the cache: [`super::rms_norm_heads`], [`super::rope`] and [`append`] in one kernel,
/// which rounds once. `sequences`, `positions` and `lengths` are as of [`append`].
///
/// # Panics
/// Where [`EnteringRows::knows`] says no, or a slice is too short.
pub fn enter_heads(
    cache: PagedCache,
    rows: EnteringRows,
    sequences: GpuSlice<i32>,
    positions: GpuSlice<i32>,
    lengths: Option<GpuSlice<i32>>,
) -> KernelCall {
    let EnteringRows { qkv, stride, heads, norms, rotation } = rows;
    let PagedCache { head_dim, kv_heads, .. } = cache;
    let all = heads + 2 * kv_heads;
    assert!(EnteringRows::knows(rotation, head_dim) && stride.is_multiple_of(2), "{rows:?}");
    qkv.holding(extent(sequences.len(), stride, all * head_dim), "rows");
    let gammas = norms.map_or([0; 2], |(gammas, _)| gammas.map(|gamma| gamma.holding(head_dim, "a norm")));
    let half = rotation.map_or(0, |rotation| rotation.half);
    let [cosines, sines] =
        rotation.map_or([0; 2], |rotation| [rotation.cosines.address, rotation.sines.address]);
    let arguments = EnterArguments {
        qkv: qkv.aligned(4, "rows"),
        of_queries: gammas[0],
        of_keys: gammas[1],
        cosines,
        sines,
        positions: positions.holding(sequences.len(), "positions"),
        sequences: sequences.address,
        to_keys: cache.keys.aligned(4, "keys"),
        to_values: cache.values.aligned(4, "values"),
        pages: cache.table.address,
        lengths: lengths.map_or(0, |lengths| lengths.address),
        stride: count(stride),
        heads: count(heads),
        kv_heads: count(kv_heads),
        head_dim: count(head_dim),
        half: count(half),
        page: count(cache.page),
        pages_per_sequence: count(cache.pages_per_sequence),
        epsilon: norms.map_or(0.0, |(_, epsilon)| epsilon),
    };
    // A warp per head.
    let grid = [sequences.len(), all.div_ceil(8), 1];
    KernelCall::new(GpuProgram::Rope, "enter_heads", grid, 256, arguments)
}

/// Writes rows of keys and values to the cache. `sequences` and `positions` have one entry per row.
/// In a cache that is a ring, position p replaces position p − room, where room is the number of
/// positions that a sequence's pages hold. There `lengths` has the length of each sequence, new
/// tokens included; of more new tokens than there is room for, only the last are written.
pub fn append(
    cache: PagedCache,
    rows: GpuRows,
    sequences: GpuSlice<i32>,
    positions: GpuSlice<i32>,
    lengths: Option<GpuSlice<i32>>,
) -> KernelCall {
    let GpuRows { keys, values, stride } = rows;
    let rows = sequences.len();
    let read = extent(rows, stride, cache.kv_heads * cache.head_dim);
    let arguments = AppendArguments {
        keys: keys.holding(read, "keys"),
        values: values.holding(read, "values"),
        lengths: lengths.map_or(0, |lengths| lengths.address),
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

/// The operands of a decode step's attention besides the cache. Each sequence has one row of
/// `heads` heads.
#[derive(Debug, Clone, Copy)]
pub struct DecodeStep {
    /// The queries and the distance of their rows.
    pub q: (GpuSlice<u16>, usize),
    /// The result and the distance of its rows.
    pub out: (GpuSlice<u16>, usize),
    /// Query heads.
    pub heads: usize,
    /// The number of positions that each sequence's token sees, its own included. A sequence with 0
    /// positions gets zeros.
    pub lengths: GpuSlice<i32>,
    /// The largest possible length.
    pub longest: usize,
    /// Positions per block, a multiple of 64. A smaller chunk makes more blocks.
    pub chunk: usize,
    /// Room for `sequences × heads × splits × (head dim + 2)` values with splits = ⌈longest /
    /// chunk⌉. With a window, `longest` counts only up to the window's size.
    pub scratch: GpuSlice<f32>,
    /// How products become scores, and which positions are seen. The cache may be a ring with room
    /// for the window only.
    pub scores: Scores,
    /// For each head, the score of a key without a value.
    pub sinks: Option<GpuSlice<f32>>,
}

/// The number of blocks that fills any GPU twice. More splits would only cost more time to join.
const ENOUGH_BLOCKS: usize = 512;
/// The least number of positions of a block. With fewer, a second call that joins the blocks takes
/// more time than it saves.
const LEAST_CHUNK: usize = 4 * POSITIONS;

/// The shortest length for which decode is launched, so that passes of short sequences have one
/// shape. Longer ones are rounded up to powers of two for the same reason.
pub const LEAST_DECODE: usize = 128;

/// Positions per block for [`DecodeStep`]: fewer where there are few sequences.
pub fn decode_chunk(sequences: usize, kv_heads: usize, longest: usize) -> usize {
    let splits = ENOUGH_BLOCKS.div_ceil((sequences * kv_heads).max(1));
    longest.div_ceil(splits).next_multiple_of(POSITIONS).max(LEAST_CHUNK)
}

/// The most bytes of scratch that [`DecodeStep`] with chunks of [`decode_chunk`] takes, for at most
/// this number of sequences and positions.
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
    out: u64,
    sinks: u64,
    q_stride: i32,
    heads: i32,
    kv_heads: i32,
    page: i32,
    pages_per_sequence: i32,
    chunk: i32,
    splits: i32,
    window: i32,
    chunked: i32,
    scale: f32,
    cap: f32,
    out_stride: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct CombineArguments {
    sums: u64,
    scales: u64,
    out: u64,
    sinks: u64,
    out_stride: i32,
    splits: i32,
}

/// Attention of one new token per sequence: two calls, to be run one after the other. The second
/// has no blocks where the first leaves nothing to join.
pub fn decode(cache: PagedCache, step: DecodeStep) -> [KernelCall; 2] {
    cache.check(step.heads);
    let DecodeStep { heads, chunk, longest, scores, .. } = step;
    assert!(chunk > 0 && chunk.is_multiple_of(POSITIONS), "{chunk} positions per block");
    assert!(scores.seen(longest) <= cache.page * cache.pages_per_sequence, "{longest} positions");
    let (sequences, head_dim) = (step.lengths.len(), cache.head_dim);
    let splits = scores.seen(longest).div_ceil(chunk);
    assert!(sequences <= cache.sequences(), "{sequences} sequences");
    let parts = sequences * heads * splits;
    step.scratch.holding(parts * (head_dim + 2), "scratch");
    let (sums, scales) = (step.scratch.address, step.scratch.from(parts * head_dim).address);
    let ((q, q_stride), (out, out_stride)) = (step.q, step.out);
    // A kernel reads two queries' values at once.
    q.aligned(4, "q");
    assert!(q_stride.is_multiple_of(2) || sequences <= 1, "queries {q_stride} values apart");
    let out = out.holding(extent(sequences, out_stride, heads * head_dim), "out");
    let (sinks, out_stride) = (sinks(step.sinks, heads), count(out_stride));
    let arguments = DecodeArguments {
        q: q.holding(extent(sequences, q_stride, heads * head_dim), "q"),
        keys: cache.keys.address,
        values: cache.values.address,
        pages: cache.table.address,
        lengths: step.lengths.address,
        sums,
        scales,
        out,
        sinks,
        q_stride: count(q_stride),
        heads: count(heads),
        kv_heads: count(cache.kv_heads),
        page: count(cache.page),
        pages_per_sequence: count(cache.pages_per_sequence),
        chunk: count(chunk),
        splits: count(splits),
        window: window(scores),
        chunked: scores.chunked.into(),
        scale: scores.scale,
        cap: scores.cap.unwrap_or(0.0),
        out_stride,
    };
    let program = GpuProgram::Decode { head_dim };
    let pieces = cache.kv_heads * (heads / cache.kv_heads).div_ceil(HEADS);
    // A tile of wide heads has fewer positions, and so fewer warps.
    let threads = if head_dim.next_multiple_of(16) <= 128 { THREADS } else { THREADS / 2 };
    let decode = KernelCall::new(program, "decode", [splits, pieces, sequences], threads, arguments);
    let arguments = CombineArguments { sums, scales, out, sinks, out_stride, splits: count(splits) };
    // One split has nothing to be joined with.
    let joined = if splits > 1 { [heads, sequences, 1] } else { [0; 3] };
    [decode, KernelCall::new(program, "combine", joined, threads, arguments)]
}

/// The operands of a prompt's attention besides the cache.
#[derive(Debug, Clone, Copy)]
pub struct PromptStep {
    /// The queries and the distance of their rows.
    pub q: (GpuSlice<u16>, usize),
    /// The result and the distance of its rows.
    pub out: (GpuSlice<u16>, usize),
    /// Query heads.
    pub heads: usize,
    /// How products become scores, and which positions are seen.
    pub scores: Scores,
    /// As in [`DecodeStep`].
    pub sinks: Option<GpuSlice<f32>>,
    /// Four numbers for each sequence: its index, its earlier positions, its new tokens, and the
    /// row of the first one.
    pub spans: GpuSlice<i32>,
    /// At least the new tokens of each sequence.
    pub most_new: usize,
    /// The keys and values of the new tokens, where they are not in the cache yet: in a ring they
    /// would replace earlier ones that are still seen.
    pub new: Option<GpuRows>,
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
    sinks: u64,
    new_keys: u64,
    new_values: u64,
    q_stride: i32,
    out_stride: i32,
    heads: i32,
    kv_heads: i32,
    page: i32,
    pages_per_sequence: i32,
    window: i32,
    chunked: i32,
    scale: f32,
    cap: f32,
    new_stride: i32,
    unused: i32,
}

/// Causal attention of new tokens over the cache and over each other.
pub fn prefill(cache: PagedCache, step: PromptStep) -> KernelCall {
    let PromptStep { heads, scores, spans, most_new, new, .. } = step;
    let ((q, q_stride), (out, out_stride)) = (step.q, step.out);
    cache.check(heads);
    // Kernels read and write two values at once.
    assert!(q_stride.is_multiple_of(2) && out_stride.is_multiple_of(2), "strides {q_stride}, {out_stride}");
    assert!(q_stride >= heads * cache.head_dim && out_stride >= heads * cache.head_dim);
    // As for the cache's own rows.
    let at_once = if cache.head_dim.is_multiple_of(8) { 16 } else { 4 };
    let of_new = |rows: fn(GpuRows) -> GpuSlice<u16>| new.map_or(0, |new| rows(new).aligned(at_once, "new"));
    assert!(new.is_none_or(|new| (2 * new.stride as u64).is_multiple_of(at_once)), "rows {new:?}");
    let arguments = PrefillArguments {
        q: q.aligned(4, "q"),
        out: out.aligned(4, "out"),
        keys: cache.keys.address,
        values: cache.values.address,
        pages: cache.table.address,
        spans: spans.address,
        sinks: sinks(step.sinks, heads),
        new_keys: of_new(|new| new.keys),
        new_values: of_new(|new| new.values),
        q_stride: count(q_stride),
        out_stride: count(out_stride),
        heads: count(heads),
        kv_heads: count(cache.kv_heads),
        page: count(cache.page),
        pages_per_sequence: count(cache.pages_per_sequence),
        window: window(scores),
        chunked: scores.chunked.into(),
        scale: scores.scale,
        cap: scores.cap.unwrap_or(0.0),
        new_stride: new.map_or(0, |new| count(new.stride)),
        unused: 0,
    };
    let rows = most_new * (heads / cache.kv_heads);
    let grid = [rows.div_ceil(ROWS), cache.kv_heads, spans.len() / 4];
    KernelCall::new(GpuProgram::Prefill { head_dim: cache.head_dim }, "prefill", grid, THREADS, arguments)
}

/// The address of each head's sink; 0 where there are none.
fn sinks(sinks: Option<GpuSlice<f32>>, heads: usize) -> u64 {
    sinks.map_or(0, |sinks| sinks.holding(heads, "sinks"))
}

/// The size of a window in the type of kernels. No window is a size larger than any sequence.
fn window(scores: Scores) -> i32 {
    scores.window.map_or(i32::MAX, count)
}
