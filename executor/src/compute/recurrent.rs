//! Gated delta nets and gated attention on a device of the host.

use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::store::locks::write;
use kernels::{DeltaNet, DeltaRows, DeltaState, StridedRows, StridedRowsMut};
use scenarios::{ActivationBuffer, Recurrence, Sublayer};

fn delta_net(recurrence: Recurrence) -> DeltaNet {
    let Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps } = recurrence else {
        unreachable!("`check_runnable` refuses other recurrences")
    };
    let [key_heads, value_heads, key_dim, value_dim, taps] =
        [key_heads, value_heads, key_dim, value_dim, taps].map(|size| size as usize);
    DeltaNet { key_heads, value_heads, key_dim, value_dim, taps }
}

impl HostWorker<'_> {
    /// Convolves q, k and v.
    pub(super) fn convolve(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) {
        let (net, width) = (delta_net(recurrence), self.model().qkv_width() as usize);
        let mut qkv = write(self.lock(ActivationBuffer::Qkv));
        let mut state = write(self.cache(job));
        let weights = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let mut rows = StridedRowsMut::new(&mut qkv.view_mut::<f32>()[..self.rows() * width], width);
        kernels::delta_convolve(
            self.pool,
            &net,
            &weights[..net.channels() * net.taps],
            &mut rows,
            &mut DeltaState(state.view_mut()),
            &self.view().spans,
        );
    }

    /// The gated delta rule, the norm and the gate behind it.
    pub(super) fn recur(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) {
        let (net, model) = (delta_net(recurrence), self.model());
        let width = model.context_width() as usize;
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let mut state = write(self.cache(job));
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let (log_rates, rest) = vectors[net.channels() * net.taps..].split_at(net.value_heads);
        let (step_bias, gamma) = rest.split_at(net.value_heads);
        let projected = StridedRows::new(qkv.view(), model.qkv_width() as usize);
        let epsilon = model.norm_eps as f32;
        kernels::gated_delta(
            self.pool,
            &net,
            DeltaRows { projected, log_rates, step_bias, gamma, epsilon },
            &mut DeltaState(state.view_mut()),
            &self.view().spans,
            StridedRowsMut::new(&mut context.view_mut::<f32>()[..self.rows() * width], width),
        );
    }

    /// Multiplies attention's output by the sigmoid of its gate, where it has one.
    pub(super) fn gate_context(&self) {
        let model = self.model();
        if !model.wiring.output_gate {
            return;
        }
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let (from, width) = (model.qkv_width() as usize, model.context_width() as usize);
        let rows = qkv.view::<f32>().chunks_exact(from).take(self.rows());
        for (row, out) in rows.zip(context.view_mut::<f32>().chunks_exact_mut(width)) {
            let gate = &row[from - width..];
            out.iter_mut().zip(gate).for_each(|(out, gate)| *out /= 1.0 + (-gate).exp());
        }
    }
}
