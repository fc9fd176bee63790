//! The cost of one task: its time when nothing else runs, and the bandwidth that it uses.
//!
//! t(operator, device) = launch + max(time of the shape at its rate, bytes ÷ bandwidth of the
//! memory); t(transfer, link) = α + bytes ÷ β. A device of several ranks takes the time of one
//! rank's share and of the sum over ranks. The time in which the host issues a kernel is a separate
//! number, because the host runs ahead of the device. The simulator adds contention between tasks;
//! for that it needs the bytes that a task moves through each shared memory.

use crate::cost::stage_flow::StageFlow;
use crate::placement::{ModelShare, combine_time};
use crate::program::{Action, Lane, OperandSource, Task};
use hwprofiles::{
    AttentionRates, Basis, Bound, Bytes, DType, Device, DeviceId, DeviceKind, Estimate, Flop, LinkId,
    Machine, MemoryId, MissingRate, Provenance, Ratio, Seconds,
};
use scenarios::{
    ActivationBuffer, ExpertTraffic, Formats, LayerKind, Model, Operator, Shape, Step, Sublayer, Work,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The values of an element-wise operator from which on the executor's CPU kernels share it among
/// threads. A test of the executor checks that its kernels use the same number.
pub const WORTH_SHARING: u64 = 1 << 14;

/// The largest term of a task's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostBound {
    /// FLOP ÷ rate.
    Compute,
    /// Bytes ÷ the memory's bandwidth.
    Memory,
    /// A transfer.
    Link,
    /// Start of the operator.
    Launch,
}

/// Bytes that a task moves through a memory whose bandwidth is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BandwidthUse {
    /// The memory.
    pub memory: MemoryId,
    /// The bytes.
    pub bytes: Bytes,
}

/// Cost of one task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskCost {
    /// Its duration when nothing else runs, including `overhead`.
    pub alone: Seconds,
    /// The part of `alone` that moves no bytes through memory: launch and sums over ranks, or the
    /// link's α.
    pub overhead: Seconds,
    /// Time in which the host issues its kernels. The task starts afterwards; the device can run
    /// earlier tasks meanwhile.
    pub issue: Seconds,
    /// Its bytes through each memory, each memory once. A transfer uses at most two striped
    /// memories at one end and one memory at the other end.
    pub loads: [Option<BandwidthUse>; 3],
    /// Bytes over the link that it uses, if any.
    pub carried: Option<(LinkId, Bytes)>,
    /// Its FLOP.
    pub flop: Flop,
    /// The largest term.
    pub bound: CostBound,
    /// How certain `alone` is.
    pub basis: Basis,
}

impl TaskCost {
    /// Cost of a task without sequences: a batch may have fewer sequences than micro-batches.
    const NOTHING: Self = Self {
        alone: Seconds::ZERO,
        overhead: Seconds::ZERO,
        issue: Seconds::ZERO,
        loads: [None; 3],
        carried: None,
        flop: Flop::ZERO,
        bound: CostBound::Launch,
        basis: Basis::Measured,
    };

    /// Bytes that the task moves over its link, or between its device and its memory.
    pub fn moved(&self) -> Bytes {
        match self.carried {
            Some((_, bytes)) => bytes,
            None => self.loads.into_iter().flatten().map(|load| load.bytes).sum(),
        }
    }
}

/// Computes the cost of tasks for a model on a machine.
#[derive(Debug, Clone, Copy)]
pub struct CostModel<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a Model,
    /// The model's number formats.
    pub formats: &'a Formats,
}

impl CostModel<'_> {
    /// Cost of `task` in `step`, for the task's part of the batch.
    ///
    /// # Errors
    /// [`MissingRate`] if a rate was not measured.
    pub fn task_cost(&self, task: &Task, step: &Step) -> Result<TaskCost, MissingRate> {
        self.routed_task_cost(task, step, None)
    }

    /// [`CostModel::task_cost`] with known traffic of the experts. Without `traffic`, experts cost
    /// the mean over the choices of tokens. Other tasks do not depend on it.
    ///
    /// # Errors
    /// [`MissingRate`] if a rate was not measured.
    pub fn routed_task_cost(
        &self,
        task: &Task,
        step: &Step,
        traffic: Option<ExpertTraffic>,
    ) -> Result<TaskCost, MissingRate> {
        let step = &task.micro_batch.step(step);
        if step.batch == 0 {
            return Ok(TaskCost::NOTHING);
        }
        self.of_kind(task.kind).cost_in_layer(task, step, traffic)
    }

    /// The cost model of layers of `kind`; of embed and head without one.
    pub(crate) fn of_kind(&self, kind: Option<LayerKind>) -> Self {
        Self { model: self.model.shape_or_ends(kind), ..*self }
    }

    /// Cost of `task` in a layer of this model's shape. `step` is the task's part of the batch.
    fn cost_in_layer(
        &self,
        task: &Task,
        step: &Step,
        traffic: Option<ExpertTraffic>,
    ) -> Result<TaskCost, MissingRate> {
        let shared = |memory: MemoryId| ModelShare::in_memory(self.machine, self.model, memory);
        let at_end = |link: LinkId| shared(self.machine.link(link).to);
        match (&task.action, task.lane) {
            (Action::Compute { operator, rows, source }, Lane::Device(device)) => {
                let home = match *source {
                    OperandSource::InPlace(memory) => memory,
                    OperandSource::Resident | OperandSource::Staged(_) => self.machine.device(device).memory,
                };
                self.compute((*operator, rows, traffic), home, device, step)
            }
            (Action::FetchWeights { sublayer, rows, .. }, Lane::Link(link)) => {
                Ok(self.transfer(link, at_end(link).matrix_bytes(*sublayer, self.formats, rows)))
            }
            (Action::FetchKv { .. }, Lane::Link(link)) => {
                let shared = at_end(link);
                let kept = shared.kv_bytes(self.formats, step.batch, step.past_tokens);
                Ok(self.transfer(link, kept + shared.unverified_bytes(step)))
            }
            (Action::StoreKv { .. }, Lane::Link(link)) => {
                let shared = at_end(link);
                let appended = shared.appended_bytes(self.formats, step.batch, step.new_tokens);
                Ok(self.transfer(link, appended + shared.unverified_bytes(step)))
            }
            (Action::Hop { buffer, columns, link, .. }, _) => {
                let rows = if task.layer.is_none() { step.batch } else { step.rows() };
                let columns = columns.end - columns.start;
                Ok(self.transfer(*link, at_end(*link).buffer_bytes(*buffer, self.formats, rows, columns)))
            }
            (action, lane) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
        }
    }

    /// The work of a compute task.
    pub fn work(&self, operator: Operator, rows: &Range<u64>, step: &Step) -> Work {
        Work::count(operator, self.model, self.formats, step, rows)
    }

    fn compute(
        &self,
        (operator, rows, traffic): (Operator, &Range<u64>, Option<ExpertTraffic>),
        home: MemoryId,
        device: DeviceId,
        step: &Step,
    ) -> Result<TaskCost, MissingRate> {
        let whole = Work::count_routed(operator, self.model, self.formats, step, rows, traffic);
        let shared = ModelShare::on_device(self.machine, self.model, device);
        let device = self.machine.device(device);
        let flow = StageFlow::new(device, step);
        let step = &flow.micro_batch;
        let work = match device.ranks {
            None => whole,
            Some(_) => shared.work(operator, self.formats, step, rows, flow.traffic(traffic)),
        };
        let work = Work { activations: self.activation_bytes(device, operator, work.activations), ..work };
        let reading = shared.all_ranks() * flow.in_flight;
        let kept = (work.weights + work.kv_read + work.kv_written) * reading;
        let loads = self.loads([(home, kept), (device.memory, work.activations * reading)]);
        let rated = self.rated(device, (operator, step), home, &work)?;
        let measured = rated.basis.is_measured() && home == device.memory;
        let loads = if measured { self.within_measured_time(loads, rated.time) } else { loads };
        let time = |load: BandwidthUse| load.bytes / self.machine.memory(load.memory).bandwidth.value;
        let streamed = loads.into_iter().flatten().map(time).fold(Seconds::ZERO, Seconds::max);
        let streamed = streamed * flow.idle_stages();
        let combine_time = self.combine_time(operator, rows, device, step);
        let widened = device.details.widened.as_ref();
        let has_kernels = widened.is_some_and(|it| step.rows() < it.from_rows.value);
        // Only prompts, whose rows are not all sampled, compute experts one by one.
        let is_one_by_one = step.sampled() < step.rows() && !has_kernels;
        let of_expert = device.details.expert.as_ref().filter(|_| is_one_by_one);
        let expert_calls = work.experts as f64 * f64::from(work.launches);
        let experts = of_expert.map_or(Seconds::ZERO, |expert| expert.value * expert_calls);
        let logits = (step.sampled() * (rows.end - rows.start)) as f64;
        let sampling = device.details.logit.as_ref().filter(|_| operator == Operator::HeadProj);
        let sampling = sampling.map_or(Seconds::ZERO, |logit| logit.value * logits);
        let on_one_thread = self.runs_on_one_thread(device, operator, &work, step);
        let fork_joins = if on_one_thread { 0.0 } else { f64::from(work.launches) };
        let mixture = device.details.mixture.as_ref().filter(|_| operator == Operator::Experts);
        let mixture = mixture.map_or(Seconds::ZERO, |mixture| mixture.value);
        let launch = device.launch.value * fork_joins + experts + mixture + sampling;
        let issue = device.issue.as_ref().map_or(Seconds::ZERO, |issue| issue.value);
        let issue = issue * f64::from(work.launches);
        let members = if on_one_thread { device.cores.len().max(1) as f64 } else { 1.0 };
        let body = (rated.time * members).max(streamed);
        // Memory is the bound if it explains most of the time: a measured time includes computation
        // and memory.
        let bound = if combine_time > launch + body {
            CostBound::Link
        } else if launch > body || issue > launch + body + combine_time {
            CostBound::Launch
        } else if streamed.get() >= 0.5 * body.get() {
            CostBound::Memory
        } else {
            CostBound::Compute
        };
        Ok(TaskCost {
            alone: (launch + body + combine_time) * flow.filling,
            overhead: (launch + combine_time) * flow.filling,
            issue: issue * flow.filling,
            loads,
            carried: None,
            flop: whole.flop,
            bound,
            basis: rated.basis,
        })
    }

    /// The time of an operator on `device` at the measured rate of its shape, with its operands in
    /// the device's own memory.
    pub(crate) fn estimate(
        &self,
        operator: Operator,
        rows: &Range<u64>,
        device: DeviceId,
        step: &Step,
    ) -> Result<Estimate, MissingRate> {
        let shared = ModelShare::on_device(self.machine, self.model, device);
        let work = shared.work(operator, self.formats, step, rows, None);
        let device = self.machine.device(device);
        let work = Work { activations: self.activation_bytes(device, operator, work.activations), ..work };
        self.rated(device, (operator, step), device.memory, &work)
    }

    /// Whether one thread does an element-wise operator alone, as our CPU kernels do where few
    /// values are not worth a fork-join.
    fn runs_on_one_thread(&self, device: &Device, operator: Operator, work: &Work, step: &Step) -> bool {
        let values = step.rows() * operator.writes().columns(self.model);
        let is_ours = device.kind != DeviceKind::Gpu && device.details.kernels.is_some();
        is_ours && work.shape == Shape::Elementwise && values < WORTH_SHARING
    }

    /// The bytes of activations that `operator` moves on a device: `bytes`, except on a GPU whose
    /// small kernels were measured. Only the executor's are, and they keep activations in 16 bits
    /// where the host keeps f32, apart from the residual stream, the logits and the router's
    /// scores.
    fn activation_bytes(&self, device: &Device, operator: Operator, bytes: Bytes) -> Bytes {
        let kernel = device.details.kernel.as_ref();
        let is_ours = kernel.is_some_and(|it| matches!(it.source, Provenance::Measured { .. }));
        if device.kind != DeviceKind::Gpu || !is_ours || self.formats.activations != DType::F32 {
            return bytes;
        }
        let (mut wide, mut narrow) = (0, 0);
        for &buffer in operator.reads().iter().chain([&operator.writes()]) {
            let is_wide = matches!(
                buffer,
                ActivationBuffer::Tokens
                    | ActivationBuffer::Residual
                    | ActivationBuffer::Logits
                    | ActivationBuffer::Routes
            );
            *if is_wide { &mut wide } else { &mut narrow } += buffer.columns(self.model);
        }
        let saved = narrow as f64 / 2.0 / (wide + narrow).max(1) as f64;
        Bytes::new((bytes.get() as f64 * (1.0 - saved)) as u64)
    }

    /// The time of attention over a chunk of a prompt and decodes of other sequences in one call,
    /// without its launch. `None` where they are computed one after the other: no such call was
    /// measured, keys and values are elsewhere, or an engine's heads do not share what they read.
    pub fn mixed_attention_time(&self, task: &Task, prefill: &Step, decode: &Step) -> Option<Seconds> {
        let (id, rows, rates) = self.mixed_attention(task)?;
        let model = self.model.shape_or_ends(task.kind);
        let shared = ModelShare::on_device(self.machine, model, id);
        if shared.sparse_shape(Operator::Attention, prefill).is_some() {
            return None;
        }
        let rows = shared.rows(Operator::Attention.sublayer(), rows);
        let shape = |step: &Step| {
            let step = task.micro_batch.step(step);
            match Work::count(Operator::Attention, &shared.share, self.formats, &step, &rows).shape {
                Shape::Attention(shape) if !shape.is_empty() => Some(shape),
                _ => None,
            }
        };
        Some(rates.mixed_time(&shape(prefill)?, &shape(decode)?)?.time)
    }

    /// Whether [`CostModel::mixed_attention_time`] may know a time of `task`.
    pub fn knows_mixed_attention(&self, task: &Task) -> bool {
        self.mixed_attention(task).is_some()
    }

    /// The device of a task of attention that computes chunks and decodes in one call, its rows,
    /// and the rates of such calls.
    fn mixed_attention<'t>(&self, task: &'t Task) -> Option<(DeviceId, &'t Range<u64>, &AttentionRates)> {
        let (Action::Compute { operator: Operator::Attention, rows, source }, Lane::Device(id)) =
            (&task.action, task.lane)
        else {
            return None;
        };
        let device = self.machine.device(id);
        let rates = device.attention.get(&self.formats.kv).filter(|rates| rates.knows_mixed())?;
        let is_elsewhere = matches!(source, OperandSource::InPlace(memory) if *memory != device.memory);
        let one_call = !is_elsewhere && device.details.grouped_attention != Some(false);
        one_call.then_some((id, rows, rates))
    }

    /// The time in which the ranks of a device combine their results. Zero with one rank.
    fn combine_time(&self, operator: Operator, rows: &Range<u64>, device: &Device, step: &Step) -> Seconds {
        let tokens = if operator.sublayer() == Sublayer::Head { step.batch } else { step.rows() };
        let columns = operator.output_columns(self.model, rows);
        combine_time(device.ranks.as_ref(), operator, (self.model, self.formats), tokens, &columns)
    }

    /// The time at the device's measured rate for the shape. Rates are measured with operands in
    /// the device's own memory.
    fn rated(
        &self,
        device: &Device,
        (operator, step): (Operator, &Step),
        home: MemoryId,
        work: &Work,
    ) -> Result<Estimate, MissingRate> {
        let is_grouped = work.experts > 0 && step.rows() > 1;
        let weights = self.formats.weights.for_sublayer(operator.sublayer());
        let rate = |memory: MemoryId| self.machine.memory(memory).bandwidth.value.get();
        let faster = Ratio::new(rate(home) / rate(device.memory)).filter(|_| home != device.memory);
        let dense = |dtype: DType, [m, n, k]: [u64; 3]| match faster {
            None => device.gemm_time(dtype, m, n, k),
            Some(faster) => device.gemm_time_from(faster, dtype, m, n, k),
        };
        let product = |[m, n, k]: [u64; 3]| {
            weights.mean_time(|dtype| {
                let time = match dense(dtype, [m, n, k])? {
                    // An engine adds a row of zeros where its library is slow with one row, as with
                    // fp8 on a B200.
                    one if m == 1 && device.kind == DeviceKind::Gpu => {
                        let two = dense(dtype, [2, n, k])?;
                        if two.time < one.time { two } else { one }
                    }
                    time => time,
                };
                Ok(match is_grouped {
                    true => device.as_grouped(dtype, [m, n, k], step.rows(), time),
                    false => time,
                })
            })
        };
        match (work.shape, faster) {
            (Shape::Gemm { m, n, k }, _) => {
                // A CPU's threads keep what lies between the products in their caches.
                let between = if device.kind == DeviceKind::Gpu { work.between } else { Bytes::ZERO };
                Ok(product([m, n, k])?.then(&device.streaming_time(between)))
            }
            (Shape::Attention(shape), None) => device.attention_time(self.formats.kv, &shape),
            (Shape::Attention(shape), Some(faster)) => {
                device.attention_time_from(faster, self.formats.kv, &shape)
            }
            (Shape::Gemms(chain), _) => {
                let times = chain.iter().map(product);
                times.reduce(|sum, next| Ok(sum?.then(&next?))).unwrap_or(Ok(Estimate::ZERO))
            }
            (Shape::Recurrence { m, n, k, passes }, _) => {
                let moved = device.elementwise_time(work.activations + work.kv_read + work.kv_written);
                let in_turn = device.details.state_rate.as_ref().filter(|_| step.new_tokens > 1);
                let computed = if let Some(rate) = in_turn {
                    // A GPU's cores keep a state between its passes, a CPU's caches are read again.
                    let passes = if device.kind == DeviceKind::Gpu { 1 } else { passes };
                    let state = (work.kv_read + work.kv_written) * step.new_tokens * passes;
                    Estimate::with_default_band(state / rate.value, Bound::Memory, Basis::Estimated)
                } else {
                    // The chunks of a prefill are products of bf16 matrices.
                    match device.gemm_time(DType::Bf16, m, n, k) {
                        Ok(computed) => computed,
                        Err(_) => product([m, n, k])?,
                    }
                };
                Ok(if computed.time > moved.time { computed } else { moved })
            }
            (Shape::Elementwise, _) => {
                Ok(device.elementwise_time(work.activations + work.weights + work.kv_written))
            }
        }
    }

    /// `loads` without the bytes that a memory of assumed bandwidth could not move within a
    /// measured `time`. The measurement is the better evidence: caches served those bytes, or the
    /// memory is faster than assumed. A measured bandwidth stays a lower bound of the time.
    fn within_measured_time(
        &self,
        loads: [Option<BandwidthUse>; 3],
        time: Seconds,
    ) -> [Option<BandwidthUse>; 3] {
        loads.map(|load| {
            let load = load?;
            let bandwidth = &self.machine.memory(load.memory).bandwidth;
            let most = match bandwidth.source {
                Provenance::Measured { .. } => load.bytes,
                Provenance::Datasheet { .. } | Provenance::Estimated { .. } => {
                    Bytes::new((bandwidth.value.get() * time.get()) as u64)
                }
            };
            Some(BandwidthUse { bytes: load.bytes.min(most), ..load })
        })
    }

    /// The bandwidth that bytes in these memories use, by the memory that owns the bandwidth.
    pub(crate) fn loads(&self, kept: [(MemoryId, Bytes); 2]) -> [Option<BandwidthUse>; 3] {
        let mut loads: [Option<BandwidthUse>; 3] = [None; 3];
        for (memory, bytes) in
            kept.into_iter().flat_map(|(memory, bytes)| self.machine.bytes_by_memory(memory, bytes))
        {
            let memory = self.machine.bandwidth_owner(memory);
            let same = |load: &&mut Option<BandwidthUse>| load.is_none_or(|load| load.memory == memory);
            let load = loads.iter_mut().find(same).expect("no link joins two striped memories");
            let before = load.map_or(Bytes::ZERO, |load| load.bytes);
            *load = Some(BandwidthUse { memory, bytes: before + bytes });
        }
        loads
    }

    /// Cost of a transfer: α + bytes ÷ β, with bandwidth of the memories at both ends.
    pub(crate) fn transfer(&self, link: LinkId, bytes: Bytes) -> TaskCost {
        let ends = self.machine.link(link);
        let alone = ends.time(bytes);
        // If both ends are in one physical memory, it is read and written.
        let loads = self.loads([(ends.from, bytes), (ends.to, bytes)]);
        TaskCost {
            alone,
            overhead: if bytes == Bytes::ZERO { Seconds::ZERO } else { ends.latency.value },
            issue: Seconds::ZERO,
            loads,
            carried: Some((link, bytes)),
            flop: Flop::ZERO,
            bound: CostBound::Link,
            basis: Basis::Measured.sourced(&ends.bandwidth.source),
        }
    }
}
