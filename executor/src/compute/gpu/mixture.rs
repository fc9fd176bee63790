//! Routers that are not plain, and shared experts, on a GPU.

use crate::compute::gpu::worker::{Done, GpuWorker};
use crate::compute::job::OperatorJob;
use crate::compute::routing;
use kernels::cuda::calls::{self, ActivationFunction, GpuSlice, ProductOutput, RouterRule};
use scenarios::{Activation, ActivationBuffer as Activations, Model, RouterScoring};

/// Alignment of the memory in which products are computed, in bytes.
const ALIGN: usize = 256;

impl GpuWorker<'_> {
    /// Turns the outputs of a router that is not plain into the weights of each token's experts.
    pub(super) fn weigh(&mut self, job: OperatorJob<'_>) -> Done {
        let experts = self.model().experts.as_ref().expect("a layer of experts");
        if experts.has_plain_router() {
            return Ok(());
        }
        let [.., correction] = self.vectors(job);
        let rule = RouterRule {
            per_token: experts.per_token as usize,
            groups: experts.groups as usize,
            groups_per_token: experts.groups_per_token as usize,
            sigmoid: experts.scoring != RouterScoring::Softmax,
            normalised: experts.normalised,
            factor: experts.weight_scale as f32,
        };
        let correction = correction.filter(|_| experts.scoring == RouterScoring::Sigmoid);
        let (outputs, size) = (self.values(job, Activations::Routes), [self.rows(), experts.count as usize]);
        self.queue.run(&calls::weigh_experts(outputs, size, correction, rule))
    }

    /// The output of the neurons `rows` of the shared expert, which every token goes to. The first
    /// job of a device starts the sum, later jobs add to it.
    pub(super) fn shared_expert(&mut self, job: OperatorJob<'_>) -> Done {
        let (model, rows) = (self.model(), self.rows());
        let hidden = model.hidden as usize;
        let parts: Vec<_> = self.matrices(job).collect();
        let [front, back] = parts[..] else { unreachable!("a shared expert has two matrices") };
        let (width, inner) = (front.shape.1, back.shape.2);
        let room: GpuSlice<u16> = self.scratch.cast();
        // What the expert makes overwrites the gates' inputs.
        let (up, made) = (room.first(width * rows), room.first(hidden * rows));
        let gated = room.from(hidden.max(width) * rows).first(inner * rows);
        let values = (hidden.max(width) + inner) * rows * size_of::<u16>();
        let scratch = self.scratch.from(values.next_multiple_of(ALIGN));
        let x: GpuSlice<u16> = self.values(job, Activations::Normed);
        self.queue.multiply(rows, (ProductOutput::Narrow(up), width), x, front, scratch)?;
        self.activate_network(model, gated, up, [rows, inner])?;
        self.queue.multiply(rows, (ProductOutput::Narrow(made), hidden), gated, back, scratch)?;
        let [.., gate] = self.vectors(job);
        let gated = model.experts.as_ref().is_some_and(|experts| experts.shared_gate);
        let adds = !routing::starts_sum(self.setup, self.phase, self.device, job);
        let (out, gate) = (self.values(job, Activations::Shared), gate.filter(|_| gated));
        self.queue.run(&calls::add_shared(out, made, (x, gate), [rows, hidden], adds))
    }

    /// The activation of experts' networks, whose rows of `up` have all gates, then all ups; or the
    /// squares of ReLU where there are no gates.
    pub(super) fn activate_network(
        &mut self,
        model: &Model,
        out: GpuSlice<u16>,
        up: GpuSlice<u16>,
        [rows, inner]: [usize; 2],
    ) -> Done {
        if !model.activation.is_gated() {
            let out = out.first(rows * inner);
            self.queue.copy(out.cast(), up.first(rows * inner).cast())?;
            return self.queue.run(&calls::activation(ActivationFunction::ReluSquared, out));
        }
        let second = up.from(inner.min(up.len()));
        self.queue.run(&match (model.wiring.gate_limit, model.activation) {
            (Some(limit), _) => calls::limited_mul(out, [up, second], 2 * inner, [rows, inner], limit as f32),
            (None, Activation::GeluTanhGated) => calls::gelu_mul(out, up, second, 2 * inner, rows, inner),
            (None, _) => calls::silu_mul(out, up, second, 2 * inner, rows, inner),
        })
    }
}
