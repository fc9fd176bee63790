//! Gated delta nets and Mamba-2 on a GPU.

use crate::compute::gpu::worker::{Done, GpuWorker};
use crate::compute::job::OperatorJob;
use crate::compute::recurrent::delta_net;
use crate::store::locks::read;
use kernels::cuda::calls::{self, DeltaVectors, GpuSlice, RecurrentRows};
use planner::OperandSource;
use scenarios::{ActivationBuffer as Activations, Recurrence};

impl GpuWorker<'_> {
    fn recurrent_rows(&self, job: OperatorJob<'_>, recurrence: Recurrence) -> RecurrentRows {
        RecurrentRows {
            net: delta_net(recurrence, self.store.tiled_heads),
            projected: (self.values(job, Activations::Qkv), self.model().qkv_width() as usize),
            rows: self.rows(),
            state: self.layer_cache(job),
            table: self.view.table,
            spans: self.view.spans,
        }
    }

    /// The layer's cache of this micro-batch, at home or in a staging slot.
    pub(super) fn layer_cache<T>(&self, job: OperatorJob<'_>) -> GpuSlice<T> {
        match job.source {
            OperandSource::Resident | OperandSource::InPlace(_) => {
                read(self.store.kv(job.layer.expect("attention is in a layer"), job.part)).values()
            }
            OperandSource::Staged(slot) => read(self.store.kv_slot(self.device, slot, job.part)).values(),
        }
    }

    /// Convolves q, k and v, or x, B and C.
    pub(super) fn convolve(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) -> Done {
        let rows = self.recurrent_rows(job, recurrence);
        let [.., weights] = self.vectors(job);
        let weights = weights.expect("a recurrence has weights");
        let biased = matches!(recurrence, Recurrence::Mamba2 { .. });
        let bias = biased.then(|| weights.from(rows.net.channels() * rows.net.taps));
        self.queue.run(&calls::delta_convolve(rows, weights, bias))
    }

    /// The recurrence, and the norm and the gate behind it.
    pub(super) fn recur(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) -> Done {
        let rows = self.recurrent_rows(job, recurrence);
        let [.., vectors] = self.vectors(job);
        let rest = vectors.expect("a recurrence has vectors").from(rows.net.channels() * rows.net.taps);
        let is_mamba = matches!(recurrence, Recurrence::Mamba2 { .. });
        let rest = if is_mamba { rest.from(rows.net.channels()) } else { rest };
        let (log_rates, rest) = (rest, rest.from(rows.net.value_heads));
        let (step_bias, rest) = (rest, rest.from(rows.net.value_heads));
        let (skip, gamma) = (rest, if is_mamba { rest.from(rows.net.value_heads) } else { rest });
        let vectors = DeltaVectors { log_rates, step_bias, gamma, epsilon: self.model().norm_eps as f32 };
        let out = self.values(job, Activations::Context);
        let calls = match is_mamba {
            true => calls::mamba2(rows, vectors, skip, out),
            false => calls::gated_delta(rows, vectors, out),
        };
        calls.iter().try_for_each(|call| self.queue.run(call))
    }
}
