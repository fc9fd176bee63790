//! Where the time of fused attention kernels goes, as formulas with a few parameters.
//!
//! There are two kernels. [`Decode`] takes a single query per sequence and streams keys and values.
//! [`Prefill`] takes several and multiplies tiles of queries with them. Keys and values that fit
//! into the last cache are read several times as fast, and the edge is sharp.

use crate::rates::attention::facts::{AttentionFacts, AttentionKernels};
use crate::rates::attention::shape::AttentionShape;
use crate::rates::estimate::Bound;
use crate::rates::fit::parameter::{Parameter, parameter};
use crate::units::{DType, Elements};

/// The parameters of [`Decode`], in its order. Their likeliest values and deviations are priors,
/// wide enough that a device's own points move them.
pub(crate) const DECODE: [Parameter; 14] = [
    parameter("fixed", "s", 10e-6, 0.5),
    parameter("item", "s", 3e-6, 0.6),
    parameter("block", "s", 0.3e-6, 1.0),
    parameter("bandwidth", "1", 0.85, 0.15),
    parameter("l2_speed", "1", 3.0, 0.4),
    parameter("l2_share", "1", 0.8, 0.3),
    parameter("smooth", "1", 2.0, 0.4),
    parameter("head_dim", "1", 0.3, 0.3),
    parameter("group", "1", 0.05, 0.7),
    parameter("serial", "s", 24e-9, 0.2),
    parameter("combine", "s", 2e-6, 0.7),
    parameter("edge", "1", 8.0, 0.4),
    parameter("pack", "s", 3e-6, 0.7),
    parameter("sequence", "s", 30e-9, 0.2),
];

/// The parameters of [`Prefill`], in its order, with priors too.
pub(crate) const PREFILL: [Parameter; 13] = [
    parameter("fixed", "s", 9e-6, 0.4),
    parameter("kv_head", "s", 1e-6, 0.8),
    parameter("bandwidth", "1", 0.8, 0.2),
    parameter("rate", "1", 0.62, 0.2),
    parameter("smooth", "1", 3.0, 0.3),
    parameter("tile", "s", 0.5e-6, 0.8),
    parameter("alone", "1", 0.8, 0.3),
    parameter("l2_speed", "1", 2.0, 0.3),
    parameter("token", "s", 1e-9, 0.7),
    parameter("new_kv", "1", 2.0, 0.4),
    parameter("ragged", "1", 0.6, 0.3),
    parameter("l2_share", "1", 0.8, 0.3),
    parameter("edge", "1", 6.0, 0.4),
];

/// The head dimension for which the parameters are stated.
const HEAD_DIM: f64 = 128.0;

/// Keys of a block.
const BLOCK: u64 = 128;

/// Keys that a tile computes beyond the last one that it meets, on average: half a block of 64.
const SURPLUS_KEYS: f64 = 32.0;

/// FlashAttention 3 starts sooner with small heads: its fixed time grows with this power of their
/// size.
const FLASH3_START: f64 = 0.15;

/// Seconds of a KV head of a sequence in the kernel for heads of 512 values, which takes one after
/// the other: 2.2 to 2.7 µs on an H100 and an H200 in batches up to 256.
const IN_TURN: f64 = 2.3e-6;

/// With more heads than this its time no longer grows: 2,048 take as long as 220.
const MOST_IN_TURN: f64 = 220.0;

/// A time in seconds, and what most of it is spent on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KernelTime {
    pub time: f64,
    pub bound: Bound,
}

/// The limits of the device that both kernels run on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DeviceLimits {
    multiprocessors: f64,
    l2: f64,
    bandwidth: f64,
    peak: f64,
    /// Bytes of one key or value.
    element: f64,
    kernels: AttentionKernels,
}

impl DeviceLimits {
    fn new(facts: &AttentionFacts, kv: DType) -> Self {
        const MANY: u64 = 1 << 20;
        Self {
            multiprocessors: facts.multiprocessors as f64,
            l2: facts.l2.as_f64(),
            bandwidth: facts.bandwidth.get(),
            peak: facts.peak.get(),
            element: kv.bytes(Elements::new(MANY)).as_f64() / MANY as f64,
            kernels: facts.kernels,
        }
    }

    /// The tiles of `shape`, together with those of decodes of `sequences` sequences of `length`
    /// keys.
    fn tiles(&self, shape: &AttentionShape, sequences: f64, length: f64) -> TileCounts {
        let (new, past) = (shape.new_tokens as f64, shape.past_tokens as f64);
        let rows = self.kernels.tile(shape.head_dim);
        let group = (shape.heads / shape.kv_heads).max(1);
        let (strips, packed) = if self.kernels.packs() { (shape.kv_heads, group) } else { (shape.heads, 1) };
        let strips = strips as f64;
        let count = shape.batch as f64 * strips * (shape.new_tokens * packed).div_ceil(rows) as f64;
        let per_tile = (rows as f64 / packed as f64).max(1.0).min(new);
        let keys = past + (new + per_tile) / 2.0 + SURPLUS_KEYS;
        let decoded = strips * sequences;
        TileCounts {
            count: count + decoded,
            keys: (count * keys + decoded * (length + SURPLUS_KEYS)) / (count + decoded),
            last: (past + new).max(length) + SURPLUS_KEYS,
        }
    }

    /// How often the keys of a decode are read: once, or once by each head of a group where the
    /// `bytes` of one KV head do not stay in the L2.
    fn rereads(&self, bytes: f64, share: f64, edge: f64, group: f64, sequences: f64) -> f64 {
        if sequences == 0.0 {
            return 0.0;
        }
        let missed = 1.0 / (1.0 + (share * self.l2 / bytes).powf(edge));
        let at_once = (self.multiprocessors / sequences).clamp(1.0, group.max(1.0));
        1.0 + missed * (group.max(1.0) / at_once - 1.0)
    }

    /// Seconds to read `bytes`; the part that the L2 holds is read `speed` times as fast.
    fn read(&self, bytes: f64, share: f64, speed: f64, edge: f64, bandwidth: f64) -> f64 {
        let missed = 1.0 / (1.0 + (share * self.l2 / bytes).powf(edge));
        bytes * (missed + (1.0 - missed) / speed) / (self.bandwidth * bandwidth)
    }
}

/// One query per sequence: fixed + combine + pack + ‖items, memory, blocks, sequences‖, where
/// - items: batch · KV heads on the multiprocessors, each `item` · (head dim / 128)^`head_dim` ·
///   (group / 4)^`group`;
/// - memory: keys, values, queries and outputs, through the L2 or past it;
/// - blocks: the chain of blocks of 128 keys that one multiprocessor computes one after another:
///   all keys at `serial` each where KV is not split, else `block` · √blocks;
/// - sequences: `sequence` each where they are scheduled one by one;
/// - combine where KV is split; pack where the queries of a group are copied next to each other
///   first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decode {
    limits: DeviceLimits,
    parameters: [f64; DECODE.len()],
}

impl Decode {
    /// The kernel on a device; `logarithms` are those of its parameters.
    pub fn new(facts: &AttentionFacts, kv: DType, logarithms: &[f64]) -> Self {
        let parameters = std::array::from_fn(|i| logarithms[i].exp());
        Self { limits: DeviceLimits::new(facts, kv), parameters }
    }

    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    /// Whether one multiprocessor reads all keys of a head.
    pub fn is_unsplit(&self, shape: &AttentionShape) -> bool {
        self.limits.kernels.packs_by_copy() && shape.heads == shape.kv_heads
    }

    pub fn time(&self, shape: &AttentionShape) -> KernelTime {
        let [
            fixed,
            item,
            block,
            bandwidth,
            speed,
            share,
            smooth,
            of_dim,
            of_group,
            serial,
            combine,
            edge,
            pack,
            sequence,
        ] = self.parameters;
        let limits = &self.limits;
        let (batch, heads, dim) = (shape.batch as f64, shape.heads as f64, shape.head_dim as f64);
        let (kv_heads, keys) = (shape.kv_heads as f64, shape.tokens() as f64);
        let (units, group, wide) = (batch * kv_heads, heads / kv_heads, dim / HEAD_DIM);
        let read = 2.0 * limits.element * dim * keys * units;
        let memory = limits.read(read, share, speed, edge, bandwidth)
            + 4.0 * dim * heads * batch / (limits.bandwidth * bandwidth);
        let items = item * units / limits.multiprocessors
            * (of_dim * wide.ln() + of_group * (group / 4.0).ln()).exp();
        let blocks = shape.tokens().div_ceil(BLOCK) as f64;
        let (chain, combined) = match self.is_unsplit(shape) {
            true => (keys * serial * wide, 0.0),
            false => (block * blocks.sqrt(), combine * (1.0 - 1.0 / blocks)),
        };
        let copies = shape.batch > 1 && shape.kv_heads > 1 && shape.heads > shape.kv_heads;
        let packed = if limits.kernels.packs_by_copy() && copies { pack } else { 0.0 };
        let sequences = if limits.kernels == AttentionKernels::Flash3 { sequence * batch } else { 0.0 };
        let work = norm(items, memory, smooth);
        let work = (work * work * work + chain * chain * chain).cbrt().hypot(sequences);
        let small = if limits.kernels == AttentionKernels::Flash3 { wide.powf(FLASH3_START) } else { 1.0 };
        let fixed = fixed * small + combined + packed;
        let in_turn = limits.kernels.decodes_in_turn(shape.head_dim);
        let work = if in_turn { work.max(IN_TURN * units.min(MOST_IN_TURN)) } else { work };
        let bound = if fixed > work {
            Bound::Launch
        } else if memory >= items.max(chain) {
            Bound::Memory
        } else {
            Bound::Compute
        };
        KernelTime { time: fixed + work, bound }
    }
}

/// Several queries per sequence: fixed + `kv_head` · KV heads + `token` · tokens + ‖tiles, memory‖,
/// where
/// - tiles of 128 queries, or 64, or fewer where heads are wide, with all keys that the causal mask
///   admits and [`SURPLUS_KEYS`], at `rate` of the peak; exponentials
///   cost the same whatever the head dimension. Tiles are dealt to the multiprocessors: evenly,
///   plus what the last round leaves idle (`ragged`), and never faster than the longest tile
///   `alone`;
/// - memory: queries, outputs, past keys and values once, new ones `new_kv` times (projected,
///   written, read).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prefill {
    limits: DeviceLimits,
    parameters: [f64; PREFILL.len()],
}

impl Prefill {
    /// The kernel on a device; `logarithms` are those of its parameters.
    pub fn new(facts: &AttentionFacts, kv: DType, logarithms: &[f64]) -> Self {
        let parameters = std::array::from_fn(|i| logarithms[i].exp());
        Self { limits: DeviceLimits::new(facts, kv), parameters }
    }

    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    pub fn time(&self, shape: &AttentionShape) -> KernelTime {
        self.together(shape, None)
    }

    /// A prefill and a decode in the same call.
    ///
    /// Each decoding sequence adds one tile per head that is nearly empty and meets all keys of the
    /// sequence: they are neither split nor packed. The tiles of one head run next to each other.
    /// Where the keys of all sequences in one KV head do not fit the L2, each head of a group reads
    /// them again, except those that run at the same time.
    pub fn together(&self, shape: &AttentionShape, decode: Option<&AttentionShape>) -> KernelTime {
        let [fixed, kv_head, bandwidth, rate, smooth, tile, alone, speed, token, new_kv, ragged, share, edge] =
            self.parameters;
        let limits = &self.limits;
        let (batch, heads, dim) = (shape.batch as f64, shape.heads as f64, shape.head_dim as f64);
        let (new, past, kv_heads) =
            (shape.new_tokens as f64, shape.past_tokens as f64, shape.kv_heads as f64);
        let (sequences, length) = decode.map_or((0.0, 0.0), |d| (d.batch as f64, d.tokens() as f64));
        let TileCounts { count, keys, last } = limits.tiles(shape, sequences, length);
        let softmax = limits.kernels.softmax_share();
        let wide = dim / HEAD_DIM * (1.0 - softmax) + softmax;
        let rows = limits.kernels.tile(shape.head_dim) as f64;
        let rate = rate * limits.kernels.short_tile_share(shape.head_dim);
        let usual = limits.kernels.tile(HEAD_DIM as u64) as f64;
        let tile = if rows < usual { tile * rows / usual } else { tile };
        let key = 4.0 * HEAD_DIM * wide * rows * limits.multiprocessors / (limits.peak * rate);
        let rounds = count / limits.multiprocessors;
        let longest = last * key * alone;
        let even = keys / last;
        let idle = even * even * (rounds.ceil() - rounds) * keys * key + (1.0 - even) * 0.5 * longest;
        let dealt = rounds * (keys * key + tile) + idle * ragged;
        let compute = if rounds > 1.0 { dealt.max(longest) } else { longest };
        let kept = 2.0 * limits.element * dim * sequences * kv_heads * length;
        let moved = 2.0 * limits.element * dim * batch * kv_heads * (past + new_kv * new)
            + 4.0 * dim * heads * (batch * new + sequences)
            + kept * limits.rereads(kept / kv_heads, share, edge, heads / kv_heads, sequences);
        let memory = limits.read(moved, share, speed, edge, bandwidth);
        let aside = kv_head * (batch + sequences) * kv_heads / limits.multiprocessors
            + token * (batch * new + sequences);
        let bound = if fixed > compute + memory + aside {
            Bound::Launch
        } else if memory + aside > compute {
            Bound::Memory
        } else {
            Bound::Compute
        };
        KernelTime { time: fixed + norm(compute, memory, smooth) + aside, bound }
    }
}

/// The tiles of a call.
struct TileCounts {
    count: f64,
    /// The mean number of keys that a tile computes: those that it meets, and half a block of 64.
    keys: f64,
    /// The number of keys that the longest tile meets.
    last: f64,
}

/// (aᵖ + bᵖ)^(1/p) for a and b above zero: between their sum (p = 1) and the larger one (p → ∞).
fn norm(a: f64, b: f64, p: f64) -> f64 {
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    large * (1.0 + (small / large).powf(p)).powf(1.0 / p)
}
