//! The order in which matrices lie in a GPU's memory.

use crate::gpu::runtime::GpuRuntime;
use crate::store::buffers::Store;
use crate::store::slices::sublayer_index;
use hwprofiles::DeviceId;
use kernels::cuda::{MatrixOrder, Queue};
use kernels::{KernelError, Weights};
use planner::{Action, Lane, OperandSource, PhasePrograms};
use scenarios::Sublayer;
use std::collections::BTreeSet;

/// A slice of a matrix: the index of its sublayer, and its first row.
pub(super) type SlicePlace = (usize, u64);

/// The slices that nothing but `gpu` reads, where they are, by products or as an embedding.
pub(super) fn read_by_products(programs: &PhasePrograms, gpu: DeviceId, tied: bool) -> BTreeSet<SlicePlace> {
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

impl Store {
    /// Puts the slices at `places` into the order of rows where they are bf16 in the GPU's memory.
    /// Products then need no copy of them.
    pub(super) fn order_by_rows(
        &mut self,
        places: &BTreeSet<SlicePlace>,
        gpu: &GpuRuntime,
    ) -> Result<(), KernelError> {
        let scratch = self.scratch(gpu.device()).lock().expect("no lane has panicked").values();
        let mut queue = gpu.queue(Lane::Device(gpu.device()))?;
        for (index, slices) in self.matrices.iter_mut().enumerate() {
            for slice in slices.iter_mut().filter(|slice| places.contains(&(index, slice.rows.start))) {
                let fits = |weights: &Weights| {
                    weights.buffer().is_on_gpu() && Queue::orders_by_rows(weights.shape(), scratch.len())
                };
                if slice.order == MatrixOrder::Rows || !slice.weights.iter().all(fits) {
                    continue;
                }
                for weights in &slice.weights {
                    queue.order_by_rows(weights.shape(), weights.buffer().values(), scratch)?;
                }
                slice.order = MatrixOrder::Rows;
            }
        }
        queue.wait()
    }
}
