//! Matrices at home.

use hwprofiles::MemoryId;
use kernels::{Weights, WeightsView};
use planner::Placement;
use scenarios::Sublayer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Sublayers that there are.
pub(crate) const SUBLAYERS: usize = Sublayer::Head as usize + 1;

/// Rows of a matrix, at home.
#[derive(Debug)]
pub(crate) struct PackedSlice {
    /// Which rows.
    pub rows: Range<u64>,
    /// Packed: one matrix, or of experts two for each (see [`tensors::Parts`]).
    pub weights: Vec<Weights>,
}

impl PackedSlice {
    /// The matrix of a sublayer that has one.
    pub fn matrix(&self) -> WeightsView<'_> {
        self.weights[0].view()
    }

    /// Its matrices over `bytes`, which are a copy of all of theirs, one after the other; at home where there is none.
    pub fn views<'a>(&'a self, copy: Option<&'a [u8]>) -> impl Iterator<Item = WeightsView<'a>> {
        let mut rest = copy;
        self.weights.iter().map(move |weights| {
            // At home they may be where nobody but a GPU sees them.
            let Some(bytes) = rest else { return weights.view() };
            let (here, after) = bytes.split_at(weights.buffer().len());
            rest = Some(after);
            let (dtype, rows, columns) = weights.shape();
            WeightsView::new(dtype, rows, columns, here).expect("a copy of a matrix")
        })
    }
}

/// Index of a sublayer; embed and head are in front of the layers.
pub(crate) fn sublayer_index(layer: Option<u32>, sublayer: Sublayer) -> usize {
    layer.map_or(0, |layer| layer as usize + 1) * SUBLAYERS + sublayer as usize
}

/// Parts by place, rows and home.
pub(crate) type KeptSlices = BTreeMap<(usize, u64, u64, MemoryId), PackedSlice>;

/// Of `matrices`, which are placed as `before` says, the parts that are where `after` wants them.
pub(crate) fn keep_slices(
    before: &Placement,
    matrices: Vec<Vec<PackedSlice>>,
    after: &Placement,
) -> KeptSlices {
    let keys = |placement: &Placement| -> BTreeSet<_> {
        let slices = placement.sublayers().flat_map(|(layer, sublayer, slices)| {
            slices.iter().map(move |slice| {
                (sublayer_index(layer, sublayer), slice.rows.start, slice.rows.end, slice.home)
            })
        });
        slices.collect()
    };
    let same: BTreeMap<_, _> = keys(before)
        .intersection(&keys(after))
        .map(|&(place, start, end, home)| ((place, start, end), home))
        .collect();
    let parts = matrices.into_iter().enumerate().flat_map(|(place, parts)| {
        parts.into_iter().map(move |part| ((place, part.rows.start, part.rows.end), part))
    });
    let kept = parts.filter_map(|(at, part)| Some(((at.0, at.1, at.2, *same.get(&at)?), part)));
    kept.collect()
}
