//! Gated delta nets, Mamba-2 and gated attention on a device of the host.

use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::store::locks::write;
use kernels::{DeltaNet, DeltaRows, DeltaState, StridedRows, StridedRowsMut};
use scenarios::{ActivationBuffer, Recurrence, Sublayer};

/// The widths of a gated delta net; of Mamba-2, whose state and convolution have the same shapes,
/// groups are heads of keys.
fn delta_net(recurrence: Recurrence, tiled: bool) -> DeltaNet {
    let sizes = match recurrence {
        Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps } => {
            [key_heads, value_heads, key_dim, value_dim, taps]
        }
        Recurrence::Mamba2 { heads, head_dim, groups, state, taps } => [groups, heads, state, head_dim, taps],
        _ => unreachable!("`check_runnable` refuses other recurrences"),
    };
    let [key_heads, value_heads, key_dim, value_dim, taps] = sizes.map(|size| size as usize);
    DeltaNet { key_heads, value_heads, tiled, key_dim, value_dim, taps }
}

impl HostWorker<'_> {
    /// Convolves q, k and v, or x, B and C.
    pub(super) fn convolve(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) {
        let (net, width) = (delta_net(recurrence, self.store.tiled_heads), self.model().qkv_width() as usize);
        let mut qkv = write(self.lock(ActivationBuffer::Qkv));
        let mut state = write(self.cache(job));
        let weights = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let (weights, rest) = weights.split_at(net.channels() * net.taps);
        let biased = matches!(recurrence, Recurrence::Mamba2 { .. });
        let bias = if biased { &rest[..net.channels()] } else { &[] };
        let mut rows = StridedRowsMut::new(&mut qkv.view_mut::<f32>()[..self.rows() * width], width);
        kernels::delta_convolve(
            self.pool,
            &net,
            [weights, bias],
            &mut rows,
            &mut DeltaState(state.view_mut()),
            &self.view().spans,
        );
    }

    /// The recurrence, and the norm and the gate behind it.
    pub(super) fn recur(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) {
        let (net, model) = (delta_net(recurrence, self.store.tiled_heads), self.model());
        let width = model.context_width() as usize;
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let mut state = write(self.cache(job));
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let projected = StridedRows::new(qkv.view(), model.qkv_width() as usize);
        let epsilon = model.norm_eps as f32;
        let rest = &vectors[net.channels() * net.taps..];
        let mut state = DeltaState(state.view_mut());
        let spans = &self.view().spans;
        let out = StridedRowsMut::new(&mut context.view_mut::<f32>()[..self.rows() * width], width);
        if matches!(recurrence, Recurrence::Mamba2 { .. }) {
            let (log_rates, rest) = rest[net.channels()..].split_at(net.value_heads);
            let (step_bias, rest) = rest.split_at(net.value_heads);
            let (skip, gamma) = rest.split_at(net.value_heads);
            let rows = DeltaRows { projected, log_rates, step_bias, gamma, epsilon };
            return kernels::mamba2(self.pool, &net, rows, skip, &mut state, spans, out);
        }
        let (log_rates, rest) = rest.split_at(net.value_heads);
        let (step_bias, gamma) = rest.split_at(net.value_heads);
        let rows = DeltaRows { projected, log_rates, step_bias, gamma, epsilon };
        kernels::gated_delta(self.pool, &net, rows, &mut state, spans, out);
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
