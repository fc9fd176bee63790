//! Slices of matrices in their home memories.

use hwprofiles::MemoryId;
use kernels::{Weights, WeightsView};
use planner::Placement;
use scenarios::Sublayer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Number of sublayers.
pub(crate) const SUBLAYERS: usize = Sublayer::Head as usize + 1;

/// Some rows of a sublayer's matrix, packed in their home memory.
#[derive(Debug)]
pub(crate) struct PackedSlice {
    /// Which rows.
    pub rows: Range<u64>,
    /// One packed matrix; two for each expert (see [`crate::weights::tensors::SublayerTensors`]).
    pub weights: Vec<Weights>,
}

impl PackedSlice {
    /// The matrix of a sublayer that has one.
    pub fn matrix(&self) -> WeightsView<'_> {
        self.weights[0].view()
    }

    /// Its matrices within `copy`, which has copies of all of them one after another, or in their
    /// home where there is no copy.
    pub fn views<'a>(&'a self, copy: Option<&'a [u8]>) -> impl Iterator<Item = WeightsView<'a>> {
        let mut rest = copy;
        self.weights.iter().map(move |weights| {
            // The home may be a memory that only a GPU can read, so no view is made before.
            let Some(bytes) = rest else { return weights.view() };
            let (here, after) = bytes.split_at(weights.buffer().len());
            rest = Some(after);
            let (dtype, rows, columns) = weights.shape();
            WeightsView::new(dtype, rows, columns, here).expect("a copy of a matrix")
        })
    }
}

/// Index of a sublayer of a layer. Embed and head come before all layers.
pub(crate) fn sublayer_index(layer: Option<u32>, sublayer: Sublayer) -> usize {
    layer.map_or(0, |layer| layer as usize + 1) * SUBLAYERS + sublayer as usize
}

/// Slices by sublayer index, first and last row, and home.
pub(crate) type KeptSlices = BTreeMap<(usize, u64, u64, MemoryId), PackedSlice>;

/// Of `matrices`, which are placed as in `before`, the slices that have the same home in `after`.
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
