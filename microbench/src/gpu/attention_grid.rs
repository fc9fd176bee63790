//! The shapes of attention that are measured, as grids over batches, lengths and pasts.
//!
//! Each size belongs to a level: the grid of a level has all sizes of that level and the levels
//! below. The lowest level is a few points for tests. In the others at least three batches have
//! three lengths or more, as [`hwprofiles::AttentionRates`] needs to read them as a grid.

use crate::method::extent::HeadShape;
use hwprofiles::{AttentionShape, Bytes, DType, Phase};
use kernels::cuda::GpuFacts;

/// A size and its level.
type Size = (u64, usize);

/// The heads of most models of 7B to 70B, and two other groupings, with fewer points.
const HEADS: [(HeadShape, Sizes); 3] = [
    (HeadShape { heads: 32, kv_heads: 8, head_dim: 128 }, MANY),
    (HeadShape { heads: 32, kv_heads: 8, head_dim: 64 }, SOME),
    (HeadShape { heads: 32, kv_heads: 32, head_dim: 128 }, SOME),
];

/// The sizes of the grids of one grouping of heads.
struct Sizes {
    /// Sequences of a decode.
    batches: &'static [Size],
    /// Tokens of each, the new one included. Powers of two, because the executor rounds up to them.
    tokens: &'static [Size],
    /// New tokens of a prompt.
    prompts: &'static [Size],
    /// Tokens before them.
    pasts: &'static [Size],
    /// (Prompts at once, tokens of each), without a past.
    several: &'static [(u64, Size)],
}

const MANY: Sizes = Sizes {
    batches: &[(1, 0), (2, 2), (4, 1), (8, 2), (16, 1), (32, 2), (64, 1)],
    tokens: &[
        (32, 0),
        (64, 2),
        (128, 0),
        (256, 2),
        (512, 1),
        (1024, 2),
        (2048, 1),
        (4096, 2),
        (8192, 1),
        (16_384, 1),
    ],
    prompts: &[(32, 0), (64, 2), (128, 1), (256, 2), (512, 1), (1024, 2), (2048, 1), (4096, 1)],
    pasts: &[(0, 0), (4096, 1), (12_288, 1)],
    several: &[(16, (32, 1)), (64, (32, 1)), (8, (512, 1)), (4, (32, 2)), (4, (128, 2)), (64, (64, 2))],
};

const SOME: Sizes = Sizes {
    batches: &[(1, 1), (4, 2), (16, 1), (64, 1)],
    tokens: &[(32, 1), (128, 2), (512, 1), (2048, 1), (8192, 2), (16_384, 1)],
    prompts: &[(32, 1), (128, 2), (512, 1), (2048, 2), (4096, 1)],
    pasts: &[(0, 1), (4096, 1), (12_288, 1)],
    several: &[],
};

/// The most bytes of one cache.
const MOST: u64 = 4 << 30;

/// For each phase and grouping of heads the shapes up to `finest` that fit such a GPU.
pub(super) fn attention_shapes(finest: usize, facts: &GpuFacts) -> Vec<(Phase, Vec<AttentionShape>)> {
    // Four fifths of what a read may use are for keys and values, less what pads them.
    let most = Bytes::new(MOST.min(facts.largest_read.get() / 2));
    let fits = |shape: &AttentionShape| DType::Bf16.bytes(shape.kv_elements()) <= most;
    let both = HEADS.iter().flat_map(|(heads, sizes)| {
        let shapes = [decodes(*heads, sizes), prompts(*heads, sizes)];
        [Phase::Decode, Phase::Prefill].into_iter().zip(shapes)
    });
    let up_to_finest = both.map(|(phase, shapes)| {
        let shapes = shapes.into_iter().filter(|(shape, level)| *level <= finest && fits(shape));
        (phase, shapes.map(|(shape, _)| shape).collect::<Vec<_>>())
    });
    up_to_finest.filter(|(_, shapes)| !shapes.is_empty()).collect()
}

/// The level of a shape; 0 for one of no grid.
pub(super) fn level(shape: &AttentionShape) -> usize {
    let all = HEADS.iter().flat_map(|(heads, sizes)| match shape.phase {
        Phase::Decode => decodes(*heads, sizes),
        Phase::Prefill => prompts(*heads, sizes),
    });
    all.into_iter().find(|(known, _)| known == shape).map_or(0, |(_, level)| level)
}

fn decodes(heads: HeadShape, sizes: &Sizes) -> Vec<(AttentionShape, usize)> {
    let each = |&(batch, of_batch): &Size| {
        let shape = move |&(tokens, of_tokens): &Size| {
            (shape(Phase::Decode, heads, [batch, 1, tokens - 1]), of_batch.max(of_tokens))
        };
        sizes.tokens.iter().map(shape)
    };
    sizes.batches.iter().flat_map(each).collect()
}

fn prompts(heads: HeadShape, sizes: &Sizes) -> Vec<(AttentionShape, usize)> {
    let each = |&(new, of_new): &Size| {
        let shape = move |&(past, of_past): &Size| {
            (shape(Phase::Prefill, heads, [1, new, past]), of_new.max(of_past))
        };
        sizes.pasts.iter().map(shape)
    };
    let several = sizes
        .several
        .iter()
        .map(|&(batch, (new, level))| (shape(Phase::Prefill, heads, [batch, new, 0]), level));
    sizes.prompts.iter().flat_map(each).chain(several).collect()
}

fn shape(phase: Phase, heads: HeadShape, [batch, new_tokens, past_tokens]: [u64; 3]) -> AttentionShape {
    let HeadShape { heads, kv_heads, head_dim } = heads;
    AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::modelled_gpu::facts;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn grids_hold_the_coarser_ones_and_no_shape_twice_and_fit_the_gpu() {
        let all = |finest| -> BTreeSet<AttentionShape> {
            let tables = attention_shapes(finest, &facts());
            let shapes: Vec<_> = tables.into_iter().flat_map(|(_, shapes)| shapes).collect();
            let distinct: BTreeSet<_> = shapes.iter().copied().collect();
            assert_eq!(distinct.len(), shapes.len());
            distinct
        };
        let [tiny, quick, full] = [0, 1, 2].map(all);
        assert!(tiny.is_subset(&quick) && quick.is_subset(&full));
        assert_eq!([tiny.len(), quick.len(), full.len()], [3, 83, 176]);
        assert!(
            full.iter().all(|shape| level(shape)
                == usize::from(!tiny.contains(shape)) + usize::from(!quick.contains(shape)))
        );
        let small = GpuFacts { largest_read: Bytes::new(1 << 30), ..facts() };
        let largest = attention_shapes(2, &small).into_iter().flat_map(|(_, shapes)| shapes);
        let largest = largest.map(|shape| DType::Bf16.bytes(shape.kv_elements())).max();
        assert_eq!(largest, Some(Bytes::new(1 << 29)));
    }

    #[test]
    fn every_grid_has_three_rows_of_three_points() {
        for finest in [1, 2] {
            for (phase, shapes) in attention_shapes(finest, &facts()) {
                let mut rows: BTreeMap<u64, usize> = BTreeMap::new();
                for shape in shapes {
                    *rows.entry(shape.batch * shape.new_tokens).or_default() += 1;
                }
                assert!(rows.values().filter(|points| **points >= 3).count() >= 3, "{phase}: {rows:?}");
            }
        }
    }
}
