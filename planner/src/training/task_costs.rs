//! The costs of the tasks of a training step.

use crate::cost::{CostBound, CostModel, TaskCost};
use crate::program::TrainingAction;
use crate::program::{Action, Lane, Task};
use hwprofiles::{Bytes, DType, DeviceId, Elements, Flop, MissingRate, Seconds};
use scenarios::Model;
use scenarios::{Operator, Phase, Shape, Step, Sublayer, Training};

/// Master weights and Adam's two moments, f32 each: 12 bytes for each parameter.
pub(super) const STATES: u64 = 3;

pub(super) struct TrainingCosts<'a> {
    pub cost_model: CostModel<'a>,
    pub training: Training,
    pub host: DeviceId,
}

impl TrainingCosts<'_> {
    pub fn price(&self, task: &Task) -> Result<TaskCost, MissingRate> {
        match (&task.action, task.lane) {
            (Action::Train(TrainingAction::Backward(operator)), Lane::Device(_)) => {
                self.backward(task, *operator)
            }
            (Action::Train(TrainingAction::StoreGradients(sublayer)), Lane::Link(link)) => {
                // As many as weights, in the weights' format.
                let rows = sublayer.matrix(self.cost_model.model).map_or(0, |(rows, _)| rows);
                let bytes =
                    sublayer.matrix_bytes(self.cost_model.model, self.cost_model.formats.weights, &(0..rows));
                Ok(self.cost_model.transfer(link, bytes))
            }
            (Action::Train(TrainingAction::Update(sublayer)), Lane::Device(_)) => Ok(self.update(*sublayer)),
            (Action::Compute { operator, .. }, _) => self.cost_model.task_cost(task, &self.step(*operator)),
            _ => self.cost_model.task_cost(task, &self.step(Operator::QkvProj)),
        }
    }

    /// All tokens of all sequences, also in the head, since each token is predicted.
    fn step(&self, operator: Operator) -> Step {
        let Training { sequences, tokens } = self.training;
        match operator.sublayer() {
            Sublayer::Head => Step { phase: Phase::Decode, ..Step::prefill(sequences, tokens) },
            _ => Step::prefill(sequences, tokens),
        }
    }

    /// Twice the forward pass: for y[m, n] = x[m, k] · W[n, k]ᵀ the products dx[m, k] = dy[m, n] ·
    /// W[n, k] and dW[n, k] = dy[m, n]ᵀ · x[m, k]; for other operators twice the bytes and twice
    /// the FLOP. The recomputation inside a fused attention kernel is not counted.
    fn backward(&self, task: &Task, operator: Operator) -> Result<TaskCost, MissingRate> {
        let CostModel { machine, model, formats } = self.cost_model;
        let step = self.step(operator);
        let rows = match operator.sublayer().matrix(model) {
            Some((rows, _)) if operator.is_matmul() => 0..rows,
            _ => 0..0,
        };
        let source = crate::program::OperandSource::Resident;
        let action = Action::Compute { operator, rows: rows.clone(), source };
        let forward = self.cost_model.task_cost(&Task { action, ..task.clone() }, &step)?;
        let twice =
            |load: crate::cost::BandwidthUse| crate::cost::BandwidthUse { bytes: load.bytes * 2, ..load };
        let loads = forward.loads.map(|load| load.map(twice));
        let (Shape::Gemm { m, n, k }, Lane::Device(device)) =
            (self.cost_model.work(operator, &rows, &step).shape, task.lane)
        else {
            let price = TaskCost { alone: forward.alone * 2.0, overhead: forward.overhead * 2.0, ..forward };
            return Ok(TaskCost {
                issue: forward.issue * 2.0,
                flop: forward.flop + forward.flop,
                loads,
                ..price
            });
        };
        let (device, weights) = (machine.device(device), formats.weights.for_sublayer(operator.sublayer()));
        let product = |m, n, k| weights.mean_time(|dtype| device.gemm_time(dtype, m, n, k));
        let (of_input, of_weights) = (product(m, k, n)?, product(n, k, m)?);
        let time = |load: crate::cost::BandwidthUse| load.bytes / machine.memory(load.memory).bandwidth.value;
        let streamed = loads.into_iter().flatten().map(time).fold(Seconds::ZERO, Seconds::max);
        let body = (of_input.time + of_weights.time).max(streamed);
        Ok(TaskCost {
            alone: forward.overhead * 2.0 + body,
            overhead: forward.overhead * 2.0,
            issue: forward.issue * 2.0,
            loads,
            flop: forward.flop + forward.flop,
            ..forward
        })
    }

    /// For each parameter Adam reads a gradient and three numbers of state, and writes the state
    /// and the weight. Its dozen FLOP for 28 bytes are not counted.
    fn update(&self, sublayer: Sublayer) -> TaskCost {
        let CostModel { machine, model, formats } = self.cost_model;
        let numbers = parameters(model, sublayer);
        let state = DType::F32.bytes(numbers) * STATES;
        let bytes: Bytes = (state + formats.weights.for_sublayer(sublayer).bytes(numbers)) * 2;
        let device = machine.device(self.host);
        let loads = self.cost_model.loads([(device.memory, bytes), (device.memory, Bytes::ZERO)]);
        let time = |load: crate::cost::BandwidthUse| load.bytes / machine.memory(load.memory).bandwidth.value;
        let streamed = loads.into_iter().flatten().map(time).fold(Seconds::ZERO, Seconds::max);
        let rated = device.elementwise_time(bytes);
        let launch = device.launch.value;
        TaskCost {
            alone: launch + rated.time.max(streamed),
            overhead: launch,
            issue: Seconds::ZERO,
            loads,
            carried: None,
            flop: Flop::ZERO,
            bound: CostBound::Memory,
            basis: rated.basis,
        }
    }
}

/// The parameters that are updated with a sublayer: its own, those of attention with the
/// projections before it; a tied matrix is updated with the embedding only.
fn parameters(model: &Model, sublayer: Sublayer) -> Elements {
    let is_tied = sublayer == Sublayer::Head && model.tied_embeddings;
    let matrix = sublayer.matrix(model).filter(|_| !is_tied).map_or(0, |(rows, columns)| rows * columns);
    let vectors = sublayer.vector_bytes(model)
        + if sublayer == Sublayer::Qkv { Sublayer::Attention.vector_bytes(model) } else { Bytes::ZERO };
    Elements::new(matrix + vectors.get() / DType::F32.bytes(Elements::new(1)).get())
}
