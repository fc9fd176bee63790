//! A network beside experts on a device of the host: each has norms of its own in front and behind,
//! and one norm is behind their sum (Gemma 4).

use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::compute::routing;
use crate::store::locks::{POISONED, read, write};
use scenarios::{ActivationBuffer, Operator, Sublayer};
use std::borrow::Cow;

impl HostWorker<'_> {
    /// The input of a router, of the shared expert or of experts: the normed residual times the
    /// weights of a norm of its own, where the three have such norms. The router's is also divided
    /// by √hidden.
    pub(super) fn own_input<'x>(&self, job: OperatorJob<'_>, x: &'x [f32]) -> Cow<'x, [f32]> {
        let (model, sublayer) = (self.model(), job.operator.sublayer());
        let own = matches!(sublayer, Sublayer::Router | Sublayer::SharedExpert | Sublayer::Experts);
        if !model.wiring.norms_beside || !own {
            return Cow::Borrowed(x);
        }
        let hidden = model.hidden as usize;
        let factor = if sublayer == Sublayer::Router { (hidden as f32).sqrt().recip() } else { 1.0 };
        let gamma = &self.store.vectors_of(self.device, job.layer, sublayer)[..hidden];
        let mut scaled = x[..self.rows() * hidden].to_vec();
        for row in scaled.chunks_exact_mut(hidden) {
            row.iter_mut().zip(gamma).for_each(|(x, gamma)| *x *= gamma * factor);
        }
        Cow::Owned(scaled)
    }

    /// Adds a device's part of the shared expert or of the experts to the sum of its kind. The
    /// experts' last part completes the layer.
    pub(super) fn add_normed_sum(&self, job: OperatorJob<'_>) {
        let (model, rows) = (self.model(), self.rows());
        let (hidden, epsilon) = (model.hidden as usize, model.norm_eps as f32);
        let mut residual = write(self.lock(ActivationBuffer::Residual));
        let made = read(self.lock(job.operator.reads()[1]));
        let mut carried = self.store.carried(self.part).lock().expect(POISONED);
        let carried = &mut *carried;
        let kind = usize::from(job.operator == Operator::ExpertsAdd);
        let (sum, made) = (&mut carried.sums[kind], &made.view::<f32>()[..rows * hidden]);
        match carried.added[kind] {
            0 => made.clone_into(sum),
            _ => kernels::add(self.pool, sum, made),
        }
        carried.added[kind] += 1;
        if carried.added[kind] < routing::device_count(self.setup, self.pass.phase, job) {
            return;
        }
        carried.added[kind] = 0;
        let vectors = self.store.vectors_of(self.device, job.layer, job.operator.sublayer());
        let gamma = |index: usize| &vectors[index * hidden..][..hidden];
        kernels::rms_norm_heads(self.pool, sum, rows, hidden, 1, gamma(1), epsilon);
        if job.operator == Operator::ExpertsAdd {
            let [network, experts] = &mut carried.sums;
            kernels::add(self.pool, network, experts);
            let residual = &mut residual.view_mut()[..rows * hidden];
            kernels::add_rms_norm(self.pool, residual, network, gamma(2), epsilon);
            self.scale_layer(job, residual);
        }
    }

    /// Multiplies the residual behind a layer by the layer's number, where it has one: the last of
    /// the vectors of its last sublayer.
    pub(super) fn scale_layer(&self, job: OperatorJob<'_>, residual: &mut [f32]) {
        let last = matches!(job.operator, Operator::FfnAdd | Operator::ExpertsAdd);
        if last && self.model().wiring.layer_scale {
            let vectors = self.store.vectors_of(self.device, job.layer, job.operator.sublayer());
            kernels::scale(self.pool, residual, *vectors.last().expect("the layer's number"));
        }
    }
}
