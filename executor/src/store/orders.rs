//! The order in which matrices lie in a GPU's memory.

use crate::gpu::runtime::GpuRuntime;
use crate::store::buffers::Store;
use crate::store::slices::SlicePlace;
use kernels::cuda::{MatrixOrder, Queue};
use kernels::{KernelError, Weights};
use planner::Lane;
use std::collections::BTreeSet;

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
