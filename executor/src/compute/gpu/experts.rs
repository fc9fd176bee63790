//! A layer's experts on a GPU: routing, their matrices, and the weighted sum.

use crate::compute::gpu::worker::{Done, GpuWorker};
use crate::compute::job::OperatorJob;
use crate::compute::routing;
use kernels::Buffer;
use kernels::cuda::calls::{self, ExpertMatrices, ExpertRouting, GpuSlice};
use scenarios::{ActivationBuffer as Activations, RouterScoring, Sublayer};

impl GpuWorker<'_> {
    /// The weighted outputs of the experts `rows`. The first job of a device starts the sum, later
    /// jobs add to it. Pairs of a token and an expert that is elsewhere have rows in the scratch
    /// that are never read.
    pub(super) fn experts(&mut self, job: OperatorJob<'_>) -> Done {
        let model = self.shape(job);
        let (rows, hidden) = (self.rows(), model.hidden as usize);
        let mixture = model.experts.as_ref().expect("a layer of experts");
        let (experts, per_token) = (mixture.count as usize, mixture.per_token as usize);
        let (pairs, inner) = (rows * per_token, mixture.intermediate as usize);
        let room: GpuSlice<u16> = self.scratch.cast();
        // The experts' outputs overwrite the gates' inputs.
        let width = if model.activation.is_gated() { 2 * inner } else { inner };
        let (up, made) = (room.first(width * pairs), room.first(hidden * pairs));
        let rest = room.from(hidden.max(width) * pairs);
        let (gated, rest) = (rest.first(inner * pairs), rest.from(inner * pairs));
        let weighs_input = mixture.scoring == RouterScoring::SigmoidOfInput;
        let routing = ExpertRouting::new(rest.cast(), rows, experts, per_token).weighing_input(weighs_input);
        let scores = self.values(job, Activations::Routes);
        self.run_all(&match mixture.has_plain_router() {
            true => routing.choose(scores, mixture.normalised),
            false => routing.choose_weighed(scores),
        })?;
        let [front, back] = self.matrices_of_experts(job);
        let x = self.values(job, Activations::Normed).first(rows * hidden);
        self.run_all(&routing.multiply(up, x, &front)?)?;
        if weighs_input {
            self.queue.run(&routing.weigh(up, width))?;
        }
        let biases = self.store.vectors_at(self.device, job.layer, Sublayer::Experts);
        let biases = biases.filter(|_| model.ffn_bias).map(Buffer::values::<f32>);
        let stride = width + hidden;
        if let Some(biases) = biases {
            self.queue.run(&routing.add_biases(up, biases, stride, width))?;
        }
        self.activate_network(model, gated, up, [pairs, inner])?;
        self.run_all(&routing.multiply(made, gated, &back)?)?;
        if let Some(biases) = biases {
            self.queue.run(&routing.add_biases(made, biases.from(width), stride, hidden))?;
        }
        let adds = !routing::starts_sum(self.setup, self.phase, self.device, job);
        let sum = self.values(job, Activations::Projected).first(rows * hidden);
        let which = job.rows.start as usize..job.rows.end as usize;
        self.queue.run(&routing.sum(sum, made, which, adds))
    }

    fn run_all(&mut self, calls: &[calls::KernelCall]) -> Done {
        calls.iter().try_for_each(|call| self.queue.run(call))
    }

    /// Gates with ups, and downs, of a job's experts.
    fn matrices_of_experts(&self, job: OperatorJob<'_>) -> [ExpertMatrices; 2] {
        let all: Vec<_> = self.matrices(job).collect();
        [0, 1].map(|which| ExpertMatrices {
            first: job.rows.start as usize,
            shape: all[which].shape,
            bytes: all.iter().skip(which).step_by(2).map(|matrix| matrix.bytes).collect(),
        })
    }
}
