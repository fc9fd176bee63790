//! Slices of matrices in their home memories.

use hwprofiles::{DeviceId, MemoryId};
use kernels::cuda::MatrixOrder;
use kernels::{Weights, WeightsView};
use planner::{Action, Lane, OperandSource, PhasePrograms, Placement};
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
    /// Packed matrices that follow one another, one for each number format of the rows; of experts
    /// two for each expert (see [`crate::weights::fused::SublayerTensors`]).
    pub weights: Vec<Weights>,
    /// How they lie: row by row only where nothing but a GPU's products reads them.
    pub order: MatrixOrder,
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

/// Which rows of which sublayer's matrix a slice has, and in which memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SliceKey {
    /// By [`sublayer_index`].
    sublayer: usize,
    start: u64,
    end: u64,
    home: MemoryId,
}

impl SliceKey {
    pub fn new(sublayer: usize, rows: &Range<u64>, home: MemoryId) -> Self {
        Self { sublayer, start: rows.start, end: rows.end, home }
    }

    /// The index of its sublayer, and its first row.
    pub fn place(&self) -> SlicePlace {
        (self.sublayer, self.start)
    }
}

/// Slices that stay where they are.
pub(crate) type KeptSlices = BTreeMap<SliceKey, PackedSlice>;

/// Of `matrices`, which are placed as in `before`, the slices that have the same home in `after`.
pub(crate) fn keep_slices(
    before: &Placement,
    matrices: Vec<Vec<PackedSlice>>,
    after: &Placement,
) -> KeptSlices {
    let keys = |placement: &Placement| -> BTreeSet<SliceKey> {
        let slices = placement.sublayers().flat_map(|(layer, sublayer, slices)| {
            let index = sublayer_index(layer, sublayer);
            slices.iter().map(move |slice| SliceKey::new(index, &slice.rows, slice.home))
        });
        slices.collect()
    };
    let unmoved: BTreeMap<_, _> = keys(before)
        .intersection(&keys(after))
        .map(|&key| ((key.sublayer, key.start, key.end), key))
        .collect();
    let slices = matrices.into_iter().enumerate();
    let slices = slices.flat_map(|(index, slices)| slices.into_iter().map(move |slice| (index, slice)));
    let kept = slices.filter_map(|(index, slice)| {
        let key = *unmoved.get(&(index, slice.rows.start, slice.rows.end))?;
        Some((key, slice))
    });
    kept.collect()
}

/// A slice of a matrix: the index of its sublayer, and its first row.
pub(crate) type SlicePlace = (usize, u64);

/// The slices that nothing but `gpu` reads, where they are, by products or as an embedding.
pub(crate) fn read_by_products(programs: &PhasePrograms, gpu: DeviceId, tied: bool) -> BTreeSet<SlicePlace> {
    let (mut by_products, mut by_others) = (BTreeSet::new(), BTreeSet::new());
    for task in programs.prefill.tasks.iter().chain(&programs.decode.tasks) {
        let (sublayer, rows, is_product) = match &task.action {
            Action::Compute { operator, rows, source } => {
                let is_here = task.lane == Lane::Device(gpu) && *source == OperandSource::Resident;
                (operator.sublayer(), rows, is_here)
            }
            Action::FetchWeights { sublayer, rows, .. } => (*sublayer, rows, false),
            _ => continue,
        };
        if rows.is_empty() {
            continue;
        }
        // A tied head has the embedding's matrix.
        let sublayer = if tied && sublayer == Sublayer::Head { Sublayer::Embed } else { sublayer };
        // Experts have kernels of their own, which read packed matrices.
        let is_product = is_product && sublayer != Sublayer::Experts;
        let places = if is_product { &mut by_products } else { &mut by_others };
        places.insert((sublayer_index(task.layer, sublayer), rows.start));
    }
    &by_products - &by_others
}
