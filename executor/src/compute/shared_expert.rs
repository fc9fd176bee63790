//! Shared experts, and routers that are not plain, on a device of the host.

use crate::compute::host::{HostWorker, gate_function};
use crate::compute::job::OperatorJob;
use crate::compute::routing;
use crate::store::locks::write;
use kernels::ExpertWeights;
use scenarios::{ActivationBuffer, RouterScoring, Sublayer};

impl HostWorker<'_> {
    /// The output of the neurons `rows` of the shared expert, which every token goes to. The first
    /// job of a device starts the sum, later jobs add to it.
    pub(super) fn shared_expert(&mut self, job: OperatorJob<'_>) {
        let (rows, hidden) = (self.rows(), self.model().hidden as usize);
        let (normed, mut sums) = self.pair(ActivationBuffer::Normed, ActivationBuffer::Shared);
        let x = &self.own_input(job, &normed.view::<f32>()[..rows * hidden]);
        let sums = &mut sums.view_mut::<f32>()[..rows * hidden];
        if routing::starts_sum(self.setup, self.pass.phase, self.device, job) {
            sums.fill(0.0);
        }
        let gate = self.store.vectors_of(self.device, job.layer, Sublayer::SharedExpert);
        let gated = self.model().experts.as_ref().is_some_and(|experts| experts.shared_gate);
        let weight = |x: &[f32]| match gated {
            false => 1.0,
            true => 1.0 / (1.0 + (-x.iter().zip(gate).map(|(x, w)| x * w).sum::<f32>()).exp()),
        };
        let tokens: Vec<_> = x.chunks_exact(hidden).map(weight).enumerate().collect();
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, Sublayer::SharedExpert, job.rows.start);
        let mut views = part.views(slot.as_ref().map(|slot| slot.bytes()));
        let mut next = || views.next().expect("gate with up, and down");
        let expert = ExpertWeights {
            gate_up: next(),
            down: next(),
            gate: gate_function(self.model()),
            biases: [&[], &[]],
            weighs_input: false,
            tokens: &tokens,
        };
        kernels::experts(self.pool, sums, x, &[expert], self.scratch);
    }

    /// Turns the outputs of a router that is not plain into the weights of each token's experts.
    pub(super) fn weigh(&self, job: OperatorJob<'_>) {
        let experts = self.model().experts.as_ref().expect("a layer of experts");
        if experts.has_plain_router() {
            return;
        }
        let mut routes = write(self.lock(ActivationBuffer::Routes));
        let outputs = &mut routes.view_mut::<f32>()[..self.rows() * experts.count as usize];
        let (.., correction) = self.norm_vectors(job);
        let correction = if experts.scoring == RouterScoring::Sigmoid { correction } else { &[] };
        routing::weigh_experts(experts, outputs, correction);
    }
}
