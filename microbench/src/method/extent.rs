//! The points that are measured at each depth.

use crate::method::options::Depth;
use hwprofiles::{AttentionShape, Bytes, DType, Phase};
use std::time::Duration;

/// The points of a measurement and the time it may take.
#[derive(Debug, Clone)]
pub(crate) struct MeasurementExtent {
    /// After this time no further pass over all points begins.
    pub budget: Duration,
    /// Passes at most.
    pub passes: usize,
    /// How long one visit of a point lasts, unless a single call takes longer.
    pub visit: Duration,
    /// A point whose single call would take longer, in seconds, is left out.
    pub longest: f64,
    /// Team sizes, ascending, from one thread to all cores.
    pub teams: Vec<usize>,
    /// Bytes of all arrays of a stream together, ascending.
    pub streams: Vec<usize>,
    /// Bytes of the working sets of the random chase, ascending.
    pub rings: Vec<usize>,
    /// Bytes of the operands through which calls cycle.
    pub arena: usize,
    /// Bytes of each probe memory, which is both read and followed.
    pub field: usize,
    /// (n, k) of matrix products, multiples of 16 and 32.
    pub shapes: Vec<(usize, usize)>,
    /// Weight formats, f32 and bf16 among them, each with the m of its products, ascending.
    pub weights: Vec<(DType, Vec<usize>)>,
    /// The m of the products that show the ceilings of each instruction set, ascending.
    pub ceilings: Vec<usize>,
    /// The shapes of attention: the first heads at all shapes, the others at some.
    pub attention: Vec<HeadGrouping>,
    /// Rows of element-wise work.
    pub elementwise: usize,
    /// Bytes of a transfer whose rate is measured.
    pub transfer: usize,
}

/// How many heads there are, and how wide they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadShape {
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Values of each head.
    pub head_dim: u64,
}

/// A grouping of heads, and the shapes at which it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeadGrouping {
    pub shape: HeadShape,
    /// (Sequences, tokens in the cache) of decodes. No two of them read the same number of bytes.
    pub decode: Vec<(u64, u64)>,
    /// Tokens of prompts, ascending.
    pub prompts: Vec<u64>,
}

/// Row counts of a full measurement.
const ROWS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl MeasurementExtent {
    /// For a machine with this many cores, this last-level cache and this memory. All operands
    /// together take less than a third of the memory.
    pub fn new(depth: Depth, cores: usize, cache: usize, capacity: Bytes) -> Self {
        // Many times the cache. Caches do not evict in order: at four times the cache's size a
        // tenth of the operands is still cached when its turn comes again, and a model's weights
        // are not.
        let past_cache = (8 * cache).next_power_of_two();
        let at_most = |part: u64| (capacity.get() / part + 1).next_power_of_two() as usize / 2;
        let arena = past_cache.max(128 * MIB).min(at_most(64));
        match depth {
            Depth::Tiny => Self::tiny(cores),
            Depth::Quick => Self::quick(cores, arena, at_most(32)),
            Depth::Full => Self::full(cores, arena, [at_most(16), at_most(32)]),
        }
    }

    /// All shapes of attention whose cache fits an arena.
    pub fn attention(&self) -> Vec<AttentionShape> {
        let mut shapes = Vec::new();
        for HeadGrouping { shape, decode, prompts } in &self.attention {
            let HeadShape { heads, kv_heads, head_dim } = *shape;
            let shape = |phase, batch, new_tokens, past_tokens| AttentionShape {
                phase,
                batch,
                new_tokens,
                past_tokens,
                heads,
                kv_heads,
                head_dim,
            };
            shapes.extend(decode.iter().map(|&(batch, tokens)| shape(Phase::Decode, batch, 1, tokens - 1)));
            shapes.extend(prompts.iter().map(|&tokens| shape(Phase::Prefill, 1, tokens, 0)));
        }
        shapes.retain(|shape| DType::F32.bytes(shape.kv_elements()).get() <= self.arena as u64);
        shapes
    }

    fn tiny(cores: usize) -> Self {
        Self {
            budget: Duration::ZERO,
            passes: 1,
            visit: Duration::ZERO,
            longest: 0.2,
            teams: team_sizes(cores, false),
            streams: vec![64 * KIB, MIB],
            rings: vec![32 * KIB, MIB],
            arena: MIB,
            field: MIB,
            shapes: vec![(64, 128), (208, 96)],
            weights: weights(&[1, 5], &[3]),
            ceilings: vec![1, 5],
            attention: heads(&[(1, 24), (3, 40)], &[17], &[(1, 24)], &[17]),
            elementwise: 32,
            transfer: MIB,
        }
    }

    /// `most` bounds the largest stream.
    fn quick(cores: usize, arena: usize, most: usize) -> Self {
        Self {
            budget: Duration::from_secs(26),
            passes: 10,
            visit: Duration::from_millis(2),
            longest: 0.5,
            teams: team_sizes(cores, false),
            streams: sizes(&[64 * KIB, MIB, 16 * MIB], (2 * arena).min(most)),
            rings: sizes(&[32 * KIB, 512 * KIB, 8 * MIB], arena),
            arena,
            field: arena,
            shapes: vec![(1024, 1024), (1024, 2816), (5632, 1024)],
            weights: weights(&[1, 2, 4, 8, 16, 32, 64, 256, 512], &[1, 4, 16, 64, 512]),
            ceilings: vec![1, 4, 16, 64, 256],
            attention: heads(
                &[(1, 32), (1, 128), (16, 48), (1, 512), (1, 2048), (4, 2048), (16, 2048)],
                &[32, 128, 512, 2048],
                &[(1, 512), (4, 2048)],
                &[512],
            ),
            elementwise: 512,
            transfer: 16 * MIB,
        }
    }

    /// `most` bounds the largest stream and the largest ring.
    fn full(cores: usize, arena: usize, most: [usize; 2]) -> Self {
        Self {
            budget: Duration::from_secs(240),
            passes: 40,
            visit: Duration::from_millis(10),
            longest: 4.0,
            teams: team_sizes(cores, true),
            streams: sizes(
                &[64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB],
                (4 * arena).min(most[0]),
            ),
            rings: sizes(
                &[16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB],
                (2 * arena).min(most[1]),
            ),
            arena,
            field: arena,
            shapes: vec![(1024, 1024), (1536, 1024), (1024, 2816), (5632, 1024), (8192, 1024), (4096, 4096)],
            weights: weights(&ROWS, &ROWS),
            ceilings: vec![1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512],
            attention: heads(
                &[
                    (1, 32),
                    (1, 128),
                    (16, 48),
                    (1, 256),
                    (1, 512),
                    (1, 1024),
                    (1, 2048),
                    (4, 1024),
                    (8, 1024),
                    (16, 1024),
                    (16, 2048),
                ],
                &[32, 128, 512, 1024, 2048],
                &[(1, 128), (1, 1024), (4, 2048), (16, 2048)],
                &[128, 512, 1024],
            ),
            elementwise: 512,
            transfer: 16 * MIB,
        }
    }
}

/// Groupings of one, four and eight query heads, with 64 values and with 128. The first is a small
/// model's and is measured at all shapes.
const HEADS: [HeadShape; 6] = [
    head_shape(16, 4, 64),
    head_shape(16, 16, 64),
    head_shape(16, 2, 64),
    head_shape(8, 8, 128),
    head_shape(16, 4, 128),
    head_shape(16, 2, 128),
];

const fn head_shape(heads: u64, kv_heads: u64, head_dim: u64) -> HeadShape {
    HeadShape { heads, kv_heads, head_dim }
}

fn heads(
    decode: &[(u64, u64)],
    prompts: &[u64],
    others_decode: &[(u64, u64)],
    others_prompts: &[u64],
) -> Vec<HeadGrouping> {
    let at = |(index, &shape): (usize, &HeadShape)| match index {
        0 => HeadGrouping { shape, decode: decode.to_vec(), prompts: prompts.to_vec() },
        _ => HeadGrouping { shape, decode: others_decode.to_vec(), prompts: others_prompts.to_vec() },
    };
    HEADS.iter().enumerate().map(at).collect()
}

/// The small sizes that are well below the largest, and the largest.
fn sizes(small: &[usize], largest: usize) -> Vec<usize> {
    small.iter().copied().filter(|&size| 2 * size <= largest).chain([largest]).collect()
}

/// Row counts by weight format. bf16 has more, since most models come in it.
fn weights(bf16: &[usize], others: &[usize]) -> Vec<(DType, Vec<usize>)> {
    [DType::Bf16, DType::F32, DType::Int8, DType::Int4]
        .map(|dtype| (dtype, if dtype == DType::Bf16 { bf16 } else { others }.to_vec()))
        .to_vec()
}

/// One thread, all cores, and all but one, which is what a loopback device leaves. With `between`,
/// also the powers of two.
fn team_sizes(cores: usize, between: bool) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&size| between && size < cores);
    let mut sizes: Vec<usize> = powers.chain([1, cores - 1, cores]).filter(|&size| size > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_teams_that_compositions_need_are_always_there() {
        assert_eq!(team_sizes(1, false), [1]);
        assert_eq!(team_sizes(2, true), [1, 2]);
        assert_eq!(team_sizes(8, false), [1, 7, 8]);
        assert_eq!(team_sizes(12, true), [1, 2, 4, 8, 11, 12]);
    }

    #[test]
    fn operands_lie_past_the_cache_where_memory_allows_and_take_less_than_a_third_of_it() {
        for depth in [Depth::Quick, Depth::Full] {
            for (cache, gib) in [(32 << 20, 16), (384 << 20, 512), (32 << 20, 2), (0, 1)] {
                let capacity = Bytes::new(gib << 30);
                let extent = MeasurementExtent::new(depth, 2, cache, capacity);
                let largest = |sizes: &[usize]| *sizes.last().unwrap();
                assert!(extent.streams.is_sorted() && extent.rings.is_sorted());
                // Source and target of streams; rings of halving sizes; one arena for each weight
                // format; the probe memory, its copies for pages and under load, and the target of
                // mixes.
                let all = 2 * largest(&extent.streams)
                    + 2 * largest(&extent.rings)
                    + 4 * extent.arena
                    + 4 * extent.field;
                assert!((all as u64) < capacity.get() / 3, "{depth:?} {cache} {gib}: {all}");
                if gib > 2 {
                    assert!(extent.arena >= 2 * cache && largest(&extent.streams) >= 2 * cache);
                }
            }
        }
    }

    #[test]
    fn attention_is_measured_once_at_each_shape_and_at_every_grouping() {
        for depth in [Depth::Tiny, Depth::Quick, Depth::Full] {
            let shapes = MeasurementExtent::new(depth, 2, 0, Bytes::new(1 << 34)).attention();
            let mut distinct = shapes.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), shapes.len());
            for phase in [Phase::Prefill, Phase::Decode] {
                for (group, head_dim) in [(1, 64), (4, 64), (8, 64), (1, 128), (4, 128), (8, 128)] {
                    let alike = |s: &AttentionShape| (s.phase, s.heads / s.kv_heads, s.head_dim);
                    assert!(shapes.iter().any(|s| alike(s) == (phase, group, head_dim)), "{depth:?}");
                }
            }
        }
    }
}
