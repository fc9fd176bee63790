//! The model's operators as kernels on a GPU: what [`crate::compute::host`] computes, enqueued.

use crate::compute::job::{OperatorJob, is_biased, scores};
use crate::gpu::inputs::InputsView;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::Store;
use crate::store::locks::read;
use crate::weights::fused::INTERLEAVE;
use hwprofiles::DeviceId;
use kernels::cuda::calls::{
    self, DecodeStep, EnteringRows, GpuRows, GpuSlice, KernelCall, PagedCache, ProductOutput, PromptStep,
};
use kernels::cuda::{GpuMatrix, MatrixOrder, Queue};
use planner::OperandSource;
use scenarios::{
    Activation, ActivationBuffer as Activations, Mixer, Model, Norm, Operator, Phase, Positions, Sublayer,
};

/// A GPU at work on one micro-batch of a pass.
pub(crate) struct GpuWorker<'a> {
    pub setup: &'a RunSetup,
    pub store: &'a Store,
    /// The shape of the operator's layer.
    pub model: &'a Model,
    pub device: DeviceId,
    pub phase: Phase,
    pub view: InputsView,
    /// The rows whose logits are wanted.
    pub ends: &'a [usize],
    pub queue: &'a mut Queue,
    /// Working memory of products, attention and experts.
    pub scratch: GpuSlice<u8>,
    /// A sum that was left to this operator, which is a norm ([`is_whole_norm`]).
    pub sum: Option<OperatorJob<'a>>,
}

/// Whether a sum with the residual can be left to a norm behind it, which then needs one kernel for
/// both.
pub(crate) fn is_plain_sum(setup: &RunSetup, job: OperatorJob<'_>) -> bool {
    let wiring = &setup.model.layer_or_ends(job.layer).wiring;
    match job.operator {
        Operator::AttnAdd | Operator::ExpertsAdd | Operator::SharedAdd => !wiring.norms_behind,
        Operator::FfnAdd => !wiring.norms_behind && !wiring.layer_scale,
        _ => false,
    }
}

/// Whether `job` is a norm of all rows of the pass, which takes a sum along. `ends`: whether logits
/// of all rows are wanted.
pub(crate) fn is_whole_norm(job: OperatorJob<'_>, ends: bool) -> bool {
    match job.operator {
        Operator::AttnNorm | Operator::FfnNorm | Operator::RouterNorm => true,
        Operator::HeadNorm => ends,
        _ => false,
    }
}

pub(crate) type Done = Result<(), kernels::KernelError>;
/// A gate's call: out, gate, up, distance between rows, rows, columns.
type GateCall = fn(GpuSlice<u16>, GpuSlice<u16>, GpuSlice<u16>, usize, usize, usize) -> KernelCall;

impl<'a> GpuWorker<'a> {
    /// Enqueues one operator.
    pub fn run(&mut self, job: OperatorJob<'_>) -> Done {
        match job.operator {
            Operator::Embed => self.embed(job),
            Operator::AttnNorm | Operator::FfnNorm | Operator::RouterNorm => {
                self.norm(job, 0, 0, self.rows())
            }
            Operator::HeadNorm => self.head_norm(job),
            Operator::Rotate => match self.model().mixer {
                Mixer::Recurrent(recurrence) => self.convolve(job, recurrence),
                _ => self.rotate(job),
            },
            Operator::IndexScores => unreachable!("models with an indexer are refused before they run"),
            Operator::Attention => match self.model().mixer {
                Mixer::Recurrent(recurrence) => self.recur(job, recurrence),
                _ => self.attend(job),
            },
            Operator::AttnAdd | Operator::FfnAdd | Operator::ExpertsAdd | Operator::SharedAdd => {
                self.add(job)
            }
            Operator::Activate => self.activate(job),
            Operator::QkvProj
            | Operator::OutProj
            | Operator::UpProj
            | Operator::DownProj
            | Operator::HeadProj => self.multiply(job),
            Operator::Route => {
                self.multiply(job)?;
                self.weigh(job)
            }
            Operator::Experts => self.experts(job),
            Operator::SharedExpert => self.shared_expert(job),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.view.rows()
    }

    pub(super) fn model(&self) -> &'a Model {
        self.model
    }

    /// The shape of the job's layer.
    pub(super) fn shape(&self, job: OperatorJob<'_>) -> &'a Model {
        self.model().layer_or_ends(job.layer)
    }

    /// An activation, as values of any type.
    pub(super) fn values<T>(&self, job: OperatorJob<'_>, buffer: Activations) -> GpuSlice<T> {
        read(self.store.activation(self.device, buffer, job.part)).values()
    }

    /// The vectors of a job's sublayer: norm weight, norm bias, and the rest. `None` stands for an
    /// empty one.
    pub(super) fn vectors(&self, job: OperatorJob<'_>) -> [Option<GpuSlice<f32>>; 3] {
        let (model, sublayer) = (self.model(), job.operator.sublayer());
        let Some(all) = self.store.vectors_at(self.device, job.layer, sublayer) else { return [None; 3] };
        let mut rest = all.values::<f32>();
        let mut next = |len| {
            let (these, after) = (rest.first(len), rest.from(len));
            rest = after;
            (!these.is_empty()).then_some(these)
        };
        let hidden = if sublayer.has_norm(model) { model.hidden as usize } else { 0 };
        let weight = next(hidden);
        let bias = next(if model.norm == Norm::Layer { hidden } else { 0 });
        [weight, bias, (!rest.is_empty()).then_some(rest)]
    }

    fn embed(&mut self, job: OperatorJob<'_>) -> Done {
        let columns = self.model().hidden as usize;
        let slice = self.store.slice(None, Sublayer::Embed, 0);
        let table = &slice.weights[0];
        let residual = self.values(job, Activations::Residual);
        let view = self.view;
        let scale = if self.model().wiring.scaled_embeddings { (columns as f64).sqrt() as f32 } else { 1.0 };
        let (shape, bytes) = (table.shape(), table.buffer());
        let call = match slice.order {
            MatrixOrder::Panels => calls::gather(residual, shape, bytes.values(), view.tokens, scale)?,
            MatrixOrder::Rows => {
                calls::gather_rows(residual, (shape.1, shape.2), bytes.values(), view.tokens, scale)
            }
        };
        self.queue.run(&call)?;
        if let (Positions::Learned { offset }, [.., Some(places)]) =
            (&self.model().positions, self.vectors(job))
        {
            let call = calls::add_positions(residual, columns, places, view.positions, *offset as usize);
            self.queue.run(&call)?;
        }
        Ok(())
    }

    /// Normalises `rows` rows from row `from` on, into rows from row `to` on.
    fn norm(&mut self, job: OperatorJob<'_>, from: usize, to: usize, rows: usize) -> Done {
        let model = self.model();
        let hidden = model.hidden as usize;
        let [weight, bias, _] = self.vectors(job);
        let sum = self.sum.map(|sum| self.values(sum, sum.operator.reads()[1]));
        let operands = calls::NormOperands {
            x: self.values(job, Activations::Residual).from(from * hidden),
            delta: sum.map(|sum| sum.from(from * hidden)),
            y: self.values(job, Activations::Normed).from(to * hidden),
            gamma: weight.expect("a norm has a weight"),
            epsilon: model.norm_eps as f32,
        };
        self.queue.run(&match bias {
            None => calls::rms_norm(rows, operands),
            Some(bias) => calls::layer_norm(rows, operands, bias),
        })
    }

    /// The norm of each sampled sequence's last row. The results are adjacent rows.
    fn head_norm(&mut self, job: OperatorJob<'_>) -> Done {
        if self.ends.len() == self.rows() {
            return self.norm(job, 0, 0, self.rows());
        }
        self.ends.iter().enumerate().try_for_each(|(to, &from)| self.norm(job, from, to, 1))
    }

    /// A matrix product and its bias. It writes the columns `rows` of the output.
    fn multiply(&mut self, job: OperatorJob<'_>) -> Done {
        let (model, sublayer) = (self.model(), job.operator.sublayer());
        let rows = if sublayer == Sublayer::Head { self.ends.len() } else { self.rows() };
        if rows == 0 {
            // No sequence is sampled in this pass.
            return Ok(());
        }
        let (input, output) = (job.operator.reads()[0], job.operator.writes());
        let (first, width) = (job.rows.start as usize, output.columns(model) as usize);
        let y = match output {
            Activations::Logits | Activations::Routes => {
                ProductOutput::Wide(self.values(job, output).from(first))
            }
            _ => ProductOutput::Narrow(self.values(job, output).from(first)),
        };
        let x = self.values(job, input);
        let mut from = 0;
        // A matrix has several parts where a file mixes formats.
        for matrix in self.matrices(job) {
            self.queue.multiply(rows, (y.beyond(from), width), x, matrix, self.scratch)?;
            from += matrix.shape.1;
        }
        let columns = (job.rows.end - job.rows.start) as usize;
        if let [.., Some(bias)] = self.vectors(job)
            && is_biased(model, job.operator)
        {
            let bias = bias.from(first).first(columns);
            self.queue.run(&calls::add_bias(y, width, rows, bias))?;
        }
        match (model.wiring.logit_cap.filter(|_| sublayer == Sublayer::Head), y) {
            (Some(cap), ProductOutput::Wide(logits)) => {
                self.queue.run(&calls::soft_cap(logits, width, rows, columns, cap as f32))
            }
            _ => Ok(()),
        }
    }

    /// A job's matrices.
    pub(super) fn matrices(&self, job: OperatorJob<'_>) -> impl Iterator<Item = GpuMatrix> + use<'a> {
        let part = self.store.slice(job.layer, job.operator.sublayer(), job.rows.start);
        // A staging slot has copies of all of them, one after another.
        let mut copies = match job.source {
            OperandSource::Resident | OperandSource::InPlace(_) => None,
            OperandSource::Staged(slot) => Some(read(self.store.weight_slot(self.device, slot)).values()),
        };
        part.weights.iter().map(move |weights| {
            let shape = weights.shape();
            let Some(rest) = copies else {
                return GpuMatrix { shape, bytes: weights.buffer().values(), order: part.order };
            };
            let len = weights.buffer().len();
            copies = Some(rest.from(len));
            GpuMatrix::packed(shape, rest.first(len))
        })
    }

    /// Where the layer's KV cache of this micro-batch is.
    fn cache(&self, job: OperatorJob<'_>) -> PagedCache {
        let shape = self.store.kv_shape(job.layer.expect("attention is in a layer"), job.part);
        let cache: GpuSlice<u16> = self.layer_cache(job);
        let half = shape.bytes() / size_of::<u16>();
        PagedCache {
            keys: cache.first(half),
            values: cache.from(half).first(half),
            table: self.view.table,
            pages_per_sequence: 1,
            page: shape.capacity,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        }
    }

    /// Normalises and rotates q and k, and appends k and v to the cache. Prompts in a layer with a
    /// window are appended after attention, as on the host.
    fn rotate(&mut self, job: OperatorJob<'_>) -> Done {
        let (model, rows, view) = (self.shape(job), self.rows(), self.view);
        let (heads, kv_heads, dim) = (model.heads as usize, model.kv_heads as usize, model.head_dim as usize);
        let (width, epsilon) = (model.qkv_width() as usize, model.norm_eps as f32);
        let qkv: GpuSlice<u16> = self.values(job, Activations::Qkv);
        let windowed = model.wiring.window.is_some();
        if !(windowed && view.most_new > 1)
            && let Some(rows) = self.entering_rows(job, qkv)
        {
            let lengths = windowed.then_some(view.lengths);
            let (cache, places) = (self.cache(job), view.positions);
            return self.queue.run(&calls::enter_heads(cache, rows, view.row_sequences, places, lengths));
        }
        if model.wiring.value_norm {
            let values = qkv.from((heads + kv_heads) * dim);
            self.queue.run(&calls::unit_heads(values, [rows, width], [kv_heads, dim], epsilon))?;
        }
        if model.qk_norm {
            self.norm_heads(job, qkv)?;
        }
        let table = self.store.rotation_of(self.device, windowed).filter(|_| !model.wiring.unrotated);
        if let Some(table) = table {
            let call = calls::rope(qkv, width, heads + kv_heads, dim, table.on_gpu(), view.positions);
            self.queue.run(&call)?;
        }
        if model.wiring.norms_rotated_qk {
            self.queue.run(&calls::unit_heads(qkv, [rows, width], [heads + kv_heads, dim], epsilon))?;
        }
        if let Some(growth) = model.wiring.query_growth {
            let growth = [growth.scale as f32, growth.tokens as f32];
            self.queue.run(&calls::grow_queries((qkv, width), heads * dim, view.positions, growth))?;
        }
        if windowed && view.most_new > 1 { Ok(()) } else { self.append(job) }
    }

    /// The rows of q, k and v, where one kernel knows all that happens to them before attention.
    fn entering_rows(&self, job: OperatorJob<'_>, qkv: GpuSlice<u16>) -> Option<EnteringRows> {
        let (model, dim) = (self.shape(job), self.shape(job).head_dim as usize);
        let wiring = &model.wiring;
        let has_more = wiring.value_norm
            || wiring.norms_whole_qk
            || wiring.norms_rotated_qk
            || wiring.query_growth.is_some();
        let table = self.store.rotation_of(self.device, wiring.window.is_some());
        let rotation = table.filter(|_| !wiring.unrotated).map(|table| table.on_gpu());
        let [.., gammas] = self.vectors(job);
        let norms =
            gammas.filter(|_| model.qk_norm).map(|gammas| [gammas.first(dim), gammas.from(dim).first(dim)]);
        let rows = EnteringRows {
            qkv,
            stride: model.qkv_width() as usize,
            heads: model.heads as usize,
            norms: norms.map(|norms| (norms, model.norm_eps as f32)),
            rotation,
        };
        let is_known = EnteringRows::knows(rotation, dim) && rows.stride.is_multiple_of(2);
        (is_known && !has_more).then_some(rows)
    }

    /// Normalises q and k with weights: head by head, or all heads together.
    fn norm_heads(&mut self, job: OperatorJob<'_>, qkv: GpuSlice<u16>) -> Done {
        let (model, rows) = (self.shape(job), self.rows());
        let (width, epsilon) = (model.qkv_width() as usize, model.norm_eps as f32);
        let [heads, kv_heads, dim] = [model.heads, model.kv_heads, model.head_dim].map(|size| size as usize);
        let [.., gammas] = self.vectors(job);
        let gammas = gammas.expect("norms of q and k have weights");
        let keys = qkv.from(heads * dim);
        if model.wiring.norms_whole_qk {
            let (q, k) = (gammas.first(heads * dim), gammas.from(heads * dim).first(kv_heads * dim));
            self.queue.run(&calls::rms_norm_row(qkv, rows, width, q, epsilon))?;
            return self.queue.run(&calls::rms_norm_row(keys, rows, width, k, epsilon));
        }
        let (q, k) = (gammas.first(dim), gammas.from(dim).first(dim));
        self.queue.run(&calls::rms_norm_heads(qkv, rows, width, heads, q, epsilon))?;
        self.queue.run(&calls::rms_norm_heads(keys, rows, width, kv_heads, k, epsilon))
    }

    /// Appends keys and values of the pass to the cache.
    fn append(&mut self, job: OperatorJob<'_>) -> Done {
        let view = self.view;
        let lengths = self.shape(job).wiring.window.map(|_| view.lengths);
        let (cache, rows) = (self.cache(job), self.new_rows(job));
        self.queue.run(&calls::append(cache, rows, view.row_sequences, view.positions, lengths))
    }

    /// Keys and values of the pass.
    fn new_rows(&self, job: OperatorJob<'_>) -> GpuRows {
        let shape = self.shape(job);
        let qkv: GpuSlice<u16> = self.values(job, Activations::Qkv);
        let keys = qkv.from((shape.heads * shape.head_dim) as usize);
        GpuRows { keys, values: keys.from(shape.kv_width() as usize), stride: shape.qkv_width() as usize }
    }

    /// Attention, and the gate of its output where it has one.
    fn attend(&mut self, job: OperatorJob<'_>) -> Done {
        self.attend_to_cache(job)?;
        let model = self.shape(job);
        if !model.wiring.output_gate {
            return Ok(());
        }
        let (all, columns) = (model.qkv_width() as usize, model.context_width() as usize);
        let gate = self.values::<u16>(job, Activations::Qkv).from(all - columns);
        let context = self.values(job, Activations::Context);
        self.queue.run(&calls::gate_rows(context, (gate, all), [self.rows(), columns]))
    }

    fn attend_to_cache(&mut self, job: OperatorJob<'_>) -> Done {
        let (model, view, cache) = (self.shape(job), self.view, self.cache(job));
        let q = (self.values(job, Activations::Qkv), model.qkv_width() as usize);
        let out = (self.values(job, Activations::Context), model.context_width() as usize);
        let (heads, scores) = (model.heads as usize, scores(model, job));
        let [.., vectors] = self.vectors(job);
        let sinks = vectors.filter(|_| model.wiring.sinks).map(|all| all.from(all.len() - heads));
        if view.most_new > 1 {
            let (spans, most_new) = (view.spans, view.most_new);
            let windowed = model.wiring.window.is_some();
            let new = windowed.then(|| self.new_rows(job));
            let step = PromptStep { q, out, heads, scores, sinks, spans, most_new, new };
            self.queue.run(&calls::prefill(cache, step))?;
            return if windowed { self.append(job) } else { Ok(()) };
        }
        let seen = scores.seen(view.longest);
        let chunk = calls::decode_chunk(view.lengths.len(), cache.kv_heads, seen);
        let (lengths, longest, scratch) = (view.lengths, view.longest, self.scratch.cast());
        let step = DecodeStep { q, out, heads, lengths, longest, chunk, scratch, scores, sinks };
        calls::decode(cache, step).iter().try_for_each(|call| self.queue.run(call))
    }

    fn add(&mut self, job: OperatorJob<'_>) -> Done {
        let (model, rows) = (self.model(), self.rows());
        let values = rows * model.hidden as usize;
        let (x, y) = (self.values(job, Activations::Residual), self.values(job, job.operator.reads()[1]));
        self.queue.run(&match self.vectors(job) {
            [Some(gamma), ..] if model.wiring.norms_behind => {
                calls::add_rms_norm(rows, x, y, gamma, model.norm_eps as f32)
            }
            _ => calls::add(x.first(values), y),
        })?;
        match self.vectors(job) {
            // The layer's number is the last one.
            [.., Some(rest)] if job.operator == Operator::FfnAdd && model.wiring.layer_scale => {
                self.queue.run(&calls::scale(x.first(values), rest.from(rest.len() - 1)))
            }
            _ => Ok(()),
        }
    }

    fn activate(&mut self, job: OperatorJob<'_>) -> Done {
        let (rows, columns) = (self.rows(), self.model().intermediate as usize);
        let (up, inner) = (self.values(job, Activations::Up), self.values(job, Activations::Inner));
        let which = match self.model().activation {
            Activation::SiluGated => return self.gate(calls::silu_mul, inner, up, [rows, columns]),
            Activation::GeluTanhGated => return self.gate(calls::gelu_mul, inner, up, [rows, columns]),
            Activation::Relu => calls::ActivationFunction::Relu,
            Activation::ReluSquared => calls::ActivationFunction::ReluSquared,
            Activation::Gelu => calls::ActivationFunction::GeluErf,
            Activation::GeluTanh => calls::ActivationFunction::GeluTanh,
            Activation::Xielu => unreachable!("it is refused before it runs"),
        };
        let inner = inner.first(rows * columns);
        self.queue.copy(inner.cast(), up.first(rows * columns).cast())?;
        self.queue.run(&calls::activation(which, inner))
    }

    /// f(gate) · up, for panels with gate and up side by side (see [`crate::weights::fused`]).
    fn gate(
        &mut self,
        f: GateCall,
        inner: GpuSlice<u16>,
        up: GpuSlice<u16>,
        [rows, columns]: [usize; 2],
    ) -> Done {
        let panel = INTERLEAVE as usize;
        if columns.is_multiple_of(panel) {
            let panels = rows * columns / panel;
            return self.queue.run(&f(inner, up, up.from(panel), 2 * panel, panels, panel));
        }
        let (last, whole) = (columns % panel, columns / panel);
        for row in 0..rows {
            let (inner, up) = (inner.from(row * columns), up.from(row * 2 * columns));
            if whole > 0 {
                self.queue.run(&f(inner, up, up.from(panel), 2 * panel, whole, panel))?;
            }
            let (inner, up) = (inner.from(whole * panel), up.from(2 * whole * panel));
            self.queue.run(&f(inner, up, up.from(last), 2 * last, 1, last))?;
        }
        Ok(())
    }
}
