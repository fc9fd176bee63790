//! The model's operators as kernels on a device of the host.

use crate::batch::pass::{MicroBatchPass, Pass};
use crate::batch::sequence::SlotSequence;
use crate::compute::job::{OperatorJob, scores};
use crate::compute::routing;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::Store;
use crate::store::locks::{POISONED, read, write};
use crate::weights::fused::INTERLEAVE;
use hwprofiles::DeviceId;
use kernels::{
    AttentionOperands, ExpertWeights, GateFunction, KvCache, KvCacheMut, KvShape, KvSpan, NewRows, Pool,
    Scratch, StridedRows, StridedRowsMut,
};
use planner::{MicroBatch, OperandSource};
use scenarios::{
    Activation, ActivationBuffer, Mixer, Model, Norm, Operator, Positions, RouterScoring, Sublayer,
};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A device at work on a run: its threads, its working memory and the current pass.
pub(crate) struct HostWorker<'a> {
    pub(super) setup: &'a RunSetup,
    pub(super) store: &'a Store,
    pub(super) device: DeviceId,
    pub(super) pool: &'a Pool,
    pub(super) scratch: &'a mut Scratch,
    pub(super) pass: Arc<Pass>,
    /// The micro-batch at work.
    pub(super) part: MicroBatch,
    /// The layer at work; `None` for the embedding and the head.
    layer: Option<u32>,
}

type ReadGuard<'a> = RwLockReadGuard<'a, kernels::Buffer>;
type WriteGuard<'a> = RwLockWriteGuard<'a, kernels::Buffer>;

impl<'a> HostWorker<'a> {
    pub fn new(
        setup: &'a RunSetup,
        store: &'a Store,
        device: DeviceId,
        pool: &'a Pool,
        scratch: &'a mut Scratch,
    ) -> Self {
        let pass = Arc::new(Pass { phase: scenarios::Phase::Decode, parts: vec![] });
        Self { setup, store, device, pool, scratch, pass, part: MicroBatch::WHOLE, layer: None }
    }

    /// Begins the next pass.
    pub fn begin(&mut self, pass: &Arc<Pass>) {
        self.pass = Arc::clone(pass);
    }

    pub(super) fn view(&self) -> &MicroBatchPass {
        &self.pass.parts[self.part.index as usize]
    }

    /// Runs one operator. `sequences` has the tokens of each slot so far.
    pub fn run(&mut self, job: OperatorJob<'_>, sequences: &RwLock<Vec<SlotSequence>>) {
        (self.part, self.layer) = (job.part, job.layer);
        match job.operator {
            Operator::Embed => self.embed(&sequences.read().expect(POISONED)),
            Operator::AttnNorm | Operator::FfnNorm | Operator::RouterNorm => self.norm(job),
            Operator::HeadNorm => self.head_norm(job),
            Operator::QkvProj if self.model().latent().is_some() => self.project_latent(job),
            Operator::Rotate => match self.model().mixer {
                Mixer::Latent(latent) => self.rotate_latent(job, latent),
                Mixer::Recurrent(recurrence) => self.convolve(job, recurrence),
                _ => self.rotate(job),
            },
            Operator::IndexScores => unreachable!("models with an indexer are refused before they run"),
            Operator::Attention => match self.model().mixer {
                Mixer::Latent(latent) => self.attend_latent(job, latent),
                Mixer::Recurrent(recurrence) => self.recur(job, recurrence),
                _ => {
                    self.attend(job);
                    self.gate_context();
                }
            },
            Operator::AttnAdd | Operator::FfnAdd | Operator::ExpertsAdd | Operator::SharedAdd => {
                self.add(job)
            }
            Operator::Activate => self.activate(),
            Operator::QkvProj
            | Operator::OutProj
            | Operator::UpProj
            | Operator::DownProj
            | Operator::HeadProj => {
                self.multiply(job);
            }
            Operator::Route => {
                self.multiply(job);
                self.weigh(job);
            }
            Operator::Experts => self.experts(job),
            Operator::SharedExpert => self.shared_expert(job),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.view().rows()
    }

    pub(super) fn model(&self) -> &'a Model {
        self.setup.model.layer_or_ends(self.layer)
    }

    /// The shape of the job's layer.
    fn shape(&self, job: OperatorJob<'_>) -> &'a Model {
        self.model().layer_or_ends(job.layer)
    }

    pub(super) fn lock(&self, buffer: ActivationBuffer) -> &'a RwLock<kernels::Buffer> {
        self.store.activation(self.device, buffer, self.part)
    }

    /// Locks an input and an output, in the order that all lanes keep.
    pub(super) fn pair(
        &self,
        from: ActivationBuffer,
        to: ActivationBuffer,
    ) -> (ReadGuard<'a>, WriteGuard<'a>) {
        if from < to {
            let from = read(self.lock(from));
            (from, write(self.lock(to)))
        } else {
            let to = write(self.lock(to));
            (read(self.lock(from)), to)
        }
    }

    /// The vectors of a job's sublayer: norm weight, norm bias, and the rest.
    pub(super) fn norm_vectors(&self, job: OperatorJob<'_>) -> (&'a [f32], &'a [f32], &'a [f32]) {
        let (model, sublayer) = (self.model(), job.operator.sublayer());
        let all = self.store.vectors_of(self.device, job.layer, sublayer);
        let normed = sublayer.has_norm(model);
        let hidden = model.hidden as usize;
        let (weight, rest) = all.split_at(if normed { hidden } else { 0 });
        let (bias, rest) = rest.split_at(if normed && model.norm == Norm::Layer { hidden } else { 0 });
        (weight, bias, rest)
    }

    fn embed(&mut self, sequences: &[SlotSequence]) {
        let hidden = self.model().hidden as usize;
        let (mut tokens, mut residual) =
            (write(self.lock(ActivationBuffer::Tokens)), write(self.lock(ActivationBuffer::Residual)));
        let ids = &mut tokens.view_mut::<u32>()[..self.rows()];
        let view = self.view();
        let places = view
            .spans
            .iter()
            .flat_map(|span| (0..span.new).map(|token| (view.first + span.sequence, span.past + token)));
        for (id, (sequence, position)) in ids.iter_mut().zip(places) {
            *id = sequences[sequence].tokens[position];
        }
        let out = &mut residual.view_mut::<f32>()[..view.positions.len() * hidden];
        let table = self.store.slice(None, Sublayer::Embed, 0);
        kernels::gather(self.pool, out, table.matrix(), ids);
        if self.model().wiring.scaled_embeddings {
            kernels::scale(self.pool, out, (hidden as f64).sqrt() as f32);
        }
        if let Positions::Learned { offset } = self.model().positions {
            let places = self.store.vectors_of(self.device, None, Sublayer::Embed);
            for (out, &position) in out.chunks_exact_mut(hidden).zip(&view.positions) {
                kernels::add(self.pool, out, &places[(position + offset as usize) * hidden..][..hidden]);
            }
        }
    }

    fn norm(&self, job: OperatorJob<'_>) {
        let (from, mut to) = self.pair(ActivationBuffer::Residual, ActivationBuffer::Normed);
        let values = self.rows() * self.model().hidden as usize;
        self.normalise(job, &mut to.view_mut()[..values], &from.view()[..values]);
    }

    /// The norm of each sampled sequence's last row. The results are adjacent rows.
    fn head_norm(&self, job: OperatorJob<'_>) {
        let (from, mut to) = self.pair(ActivationBuffer::Residual, ActivationBuffer::Normed);
        let hidden = self.model().hidden as usize;
        for (to, &end) in to.view_mut().chunks_exact_mut(hidden).zip(&self.view().ends) {
            self.normalise(job, to, &from.view()[end * hidden..][..hidden]);
        }
    }

    fn normalise(&self, job: OperatorJob<'_>, to: &mut [f32], from: &[f32]) {
        let (weight, bias, _) = self.norm_vectors(job);
        let epsilon = self.model().norm_eps as f32;
        match self.model().norm {
            Norm::Rms | Norm::RmsPlusOne => kernels::rms_norm(self.pool, to, from, weight, epsilon),
            Norm::Layer => kernels::layer_norm(self.pool, to, from, weight, bias, epsilon),
        }
    }

    /// A matrix product and its bias. It writes the columns `rows` of the output.
    fn multiply(&mut self, job: OperatorJob<'_>) {
        let sublayer = job.operator.sublayer();
        let rows = if sublayer == Sublayer::Head { self.view().ends.len() } else { self.rows() };
        if rows == 0 {
            // No sequence is sampled in this pass.
            return;
        }
        let (input, output) = (job.operator.reads()[0], job.operator.writes());
        let (from, mut to) = self.pair(input, output);
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, sublayer, job.rows.start);
        let (first, width) = (job.rows.start as usize, output.columns(self.model()) as usize);
        let columns = input.columns(self.model()) as usize;
        let to = &mut to.view_mut::<f32>()[..rows * width];
        let mut at = first;
        for weights in part.views(slot.as_ref().map(|slot| slot.bytes())) {
            let (y, x) = (StridedRowsMut::new(&mut to[at..], width), StridedRows::new(from.view(), columns));
            at += weights.rows();
            kernels::gemm(self.pool, rows, y, x, weights, self.scratch);
        }
        let (.., bias) = self.norm_vectors(job);
        // The vector of a router with a sigmoid corrects its choice.
        let corrects = job.operator == Operator::Route
            && self.model().experts.as_ref().is_some_and(|it| it.scoring == RouterScoring::Sigmoid);
        let bias = if corrects { &[] } else { bias };
        let mine = first..job.rows.end as usize;
        if bias.len() == mine.len() {
            kernels::add_bias(self.pool, to, bias);
        } else if !bias.is_empty() {
            let bias = &bias[mine.clone()];
            to.chunks_exact_mut(width)
                .for_each(|row| kernels::add_bias(self.pool, &mut row[mine.clone()], bias));
        }
        if let Some(cap) = self.model().wiring.logit_cap.filter(|_| sublayer == Sublayer::Head) {
            let cap = |row: &mut [f32]| kernels::soft_cap(self.pool, &mut row[mine.clone()], cap as f32);
            to.chunks_exact_mut(width).for_each(cap);
        }
    }

    /// The staging slot with the job's weights, where they are staged.
    pub(super) fn staged(&self, job: OperatorJob<'_>) -> Option<ReadGuard<'a>> {
        match job.source {
            OperandSource::Resident | OperandSource::InPlace(_) => None,
            OperandSource::Staged(slot) => Some(read(self.store.weight_slot(self.device, slot))),
        }
    }

    /// The weighted sum of the outputs of the experts `rows`, expert by expert, so that each
    /// expert's weights are read once. The first job of a device starts the sum, later jobs add to
    /// it.
    fn experts(&mut self, job: OperatorJob<'_>) {
        let model = self.shape(job);
        let (rows, hidden) = (self.rows(), model.hidden as usize);
        let mixture = model.experts.as_ref().expect("a layer of experts");
        let normed = read(self.lock(ActivationBuffer::Normed));
        let mut sums = write(self.lock(ActivationBuffer::Projected));
        let routes = read(self.lock(ActivationBuffer::Routes));
        let sums = &mut sums.view_mut::<f32>()[..rows * hidden];
        if routing::starts_sum(self.setup, self.pass.phase, self.device, job) {
            sums.fill(0.0);
        }
        let tokens = routing::tokens_by_expert(
            mixture,
            &routes.view::<f32>()[..rows * mixture.count as usize],
            job.rows,
        );
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, Sublayer::Experts, job.rows.start);
        let mut views = part.views(slot.as_ref().map(|slot| slot.bytes()));
        let gate = gate_function(model);
        let inner = mixture.intermediate as usize;
        let mut biases = self.store.vectors_of(self.device, job.layer, Sublayer::Experts);
        biases = &biases[biases.len().min(job.rows.start as usize * (2 * inner + hidden))..];
        let weighs_input = mixture.scoring == RouterScoring::SigmoidOfInput;
        let mut expert = |tokens| {
            let (gate_up, down) = (views.next()?, views.next()?);
            let mut bias = |rows: usize| biases.split_off(..rows.min(biases.len())).unwrap_or_default();
            let biases = [bias(2 * inner), bias(hidden)];
            Some(ExpertWeights { gate_up, down, gate, biases, weighs_input, tokens })
        };
        let experts: Vec<_> = tokens.iter().map_while(|tokens| expert(tokens)).collect();
        kernels::experts(self.pool, sums, &normed.view()[..rows * hidden], &experts, self.scratch);
    }

    /// Normalises and rotates q and k, and appends k and v to the cache. In a layer with a window
    /// several tokens of a sequence are appended after attention: the cache has room for the window
    /// only, so they would replace tokens that they see.
    fn rotate(&self, job: OperatorJob<'_>) {
        let (model, rows) = (self.shape(job), self.rows());
        let (heads, kv_heads, dim) = (model.heads as usize, model.kv_heads as usize, model.head_dim as usize);
        let width = model.qkv_width() as usize;
        let mut qkv = write(self.lock(ActivationBuffer::Qkv));
        let qkv = &mut qkv.view_mut::<f32>()[..rows * width];
        let keys = heads * dim;
        let epsilon = model.norm_eps as f32;
        if model.qk_norm {
            let gammas = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
            // A norm over all heads is that of one wide head.
            let spans = |heads| if model.wiring.norms_whole_qk { (1, heads * dim) } else { (heads, dim) };
            let [(q_heads, q_width), (k_heads, k_width)] = [heads, kv_heads].map(spans);
            let (q, k) = gammas.split_at(q_width);
            kernels::rms_norm_heads(self.pool, qkv, rows, width, q_heads, q, epsilon);
            let k = &k[..k_width];
            kernels::rms_norm_heads(self.pool, &mut qkv[keys..], rows, width, k_heads, k, epsilon);
        }
        let table = self.store.rotation_of(self.device, scores(model, job).window.is_some());
        if let Some(table) = table.filter(|_| !model.wiring.unrotated) {
            kernels::rope(self.pool, qkv, width, heads + kv_heads, dim, table, &self.view().positions);
        }
        if model.wiring.norms_rotated_qk {
            let ones = vec![1.0; dim];
            kernels::rms_norm_heads(self.pool, qkv, rows, width, heads + kv_heads, &ones, epsilon);
        }
        if let Some(growth) = model.wiring.query_growth {
            for (row, &position) in qkv.chunks_exact_mut(width).zip(&self.view().positions) {
                let factor = growth.factor(position as u64) as f32;
                row[..keys].iter_mut().for_each(|query| *query *= factor);
            }
        }
        let windowed = model.wiring.window.is_some();
        self.append(job, qkv, |span| span.new == 1 || !windowed);
    }

    /// Appends keys and values of `qkv` to the cache, for the spans that are `wanted`.
    fn append(&self, job: OperatorJob<'_>, qkv: &[f32], wanted: impl Fn(&KvSpan) -> bool) {
        let mut cache = write(self.cache(job));
        let shape = self.cache_shape(job);
        let (keys, values) = cache.bytes_mut()[..2 * shape.bytes()].split_at_mut(shape.bytes());
        let mut cache = KvCacheMut::new(shape, keys, values).expect("the store's shape");
        let spans = KvSpan::with_rows(&self.view().spans).filter(|(_, span)| wanted(span));
        cache.append_to_ring(self.pool, spans, new_rows(self.shape(job), qkv));
    }

    fn attend(&mut self, job: OperatorJob<'_>) {
        let model = self.shape(job);
        let (q_width, width) = (model.qkv_width() as usize, model.context_width() as usize);
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let cache = read(self.cache(job));
        let shape = self.cache_shape(job);
        let (keys, values) = cache.bytes()[..2 * shape.bytes()].split_at(shape.bytes());
        let in_cache = KvCache::new(shape, keys, values).expect("the store's shape");
        let scores = scores(model, job);
        let spans = &self.pass.parts[self.part.index as usize].spans;
        let appends = model.wiring.window.is_some() && spans.iter().any(|span| span.new > 1);
        let new = appends.then(|| new_rows(model, qkv.view()));
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let operands = AttentionOperands {
            heads: model.heads as usize,
            scores,
            sinks: if model.wiring.sinks { &vectors[vectors.len() - model.heads as usize..] } else { &[] },
            out: StridedRowsMut::new(&mut context.view_mut::<f32>()[..self.rows() * width], width),
            q: StridedRows::new(qkv.view(), q_width),
            cache: in_cache,
            new,
            spans,
        };
        kernels::attention(self.pool, operands, self.scratch);
        drop(cache);
        if appends {
            self.append(job, qkv.view(), |span| span.new > 1);
        }
    }

    /// The shape of the cache that a job attends to.
    fn cache_shape(&self, job: OperatorJob<'_>) -> KvShape {
        self.store.kv_shape(job.layer.expect("attention is in a layer"), self.part)
    }

    /// The layer's KV cache, at home or in a staging slot.
    pub(super) fn cache(&self, job: OperatorJob<'_>) -> &'a RwLock<kernels::Buffer> {
        match job.source {
            OperandSource::Resident | OperandSource::InPlace(_) => {
                self.store.kv(job.layer.expect("attention is in a layer"), self.part)
            }
            OperandSource::Staged(slot) => self.store.kv_slot(self.device, slot, self.part),
        }
    }

    /// Adds the output of attention or of the feed-forward network to the residual, through the
    /// norm behind it where there is one.
    fn add(&self, job: OperatorJob<'_>) {
        let mut residual = write(self.lock(ActivationBuffer::Residual));
        let projected = read(self.lock(job.operator.reads()[1]));
        let (model, values) = (self.model(), self.rows() * self.model().hidden as usize);
        let (sum, made) = (&mut residual.view_mut()[..values], &projected.view()[..values]);
        if !model.wiring.norms_behind {
            return kernels::add(self.pool, sum, made);
        }
        let (weight, ..) = self.norm_vectors(job);
        kernels::add_rms_norm(self.pool, sum, made, weight, model.norm_eps as f32);
    }

    fn activate(&self) {
        let (up, mut inner) = self.pair(ActivationBuffer::Up, ActivationBuffer::Inner);
        let (rows, columns) = (self.rows(), self.model().intermediate as usize);
        let inner = &mut inner.view_mut::<f32>()[..rows * columns];
        let up = &up.view::<f32>()[..rows * self.model().up_width() as usize];
        if !self.model().activation.is_gated() {
            inner.copy_from_slice(up);
        }
        match self.model().activation {
            Activation::SiluGated => gate(kernels::silu_mul, self.pool, inner, up, columns),
            Activation::GeluTanhGated => gate(kernels::gelu_mul, self.pool, inner, up, columns),
            Activation::Relu => kernels::relu(self.pool, inner),
            Activation::Gelu => kernels::gelu_erf(self.pool, inner),
            Activation::GeluTanh => kernels::gelu_tanh(self.pool, inner),
            other @ (Activation::ReluSquared | Activation::Xielu) => {
                unreachable!("{other:?} is refused before it runs")
            }
        }
    }
}

/// Keys and values of new tokens within rows of q, k and v.
fn new_rows<'q>(shape: &Model, qkv: &'q [f32]) -> NewRows<'q> {
    let keys = (shape.heads * shape.head_dim) as usize;
    let (keys, values) = (&qkv[keys..], &qkv[keys + shape.kv_width() as usize..]);
    NewRows { keys, values, stride: shape.qkv_width() as usize }
}

/// How the experts of `shape` join gate and up.
fn gate_function(shape: &Model) -> GateFunction {
    match (shape.wiring.gate_limit, shape.activation) {
        (Some(limit), _) => GateFunction::Limited(limit as f32),
        (None, Activation::GeluTanhGated) => GateFunction::GeluTanh,
        (None, _) => GateFunction::Silu,
    }
}

/// A gate's kernel: pool, out, gate, up, distance between rows, columns.
type GateKernel = fn(&Pool, &mut [f32], &[f32], &[f32], usize, usize);

/// f(gate) · up, for panels with gate and up side by side (see [`crate::weights::fused`]).
fn gate(kernel: GateKernel, pool: &Pool, inner: &mut [f32], up: &[f32], columns: usize) {
    let panel = INTERLEAVE as usize;
    if columns.is_multiple_of(panel) {
        return kernel(pool, inner, up, &up[panel..], 2 * panel, panel);
    }
    let last = columns % panel;
    for (inner, up) in inner.chunks_exact_mut(columns).zip(up.chunks_exact(2 * columns)) {
        let (inner, inner_last) = inner.split_at_mut(columns - last);
        let (up, up_last) = up.split_at(2 * (columns - last));
        if !inner.is_empty() {
            kernel(pool, inner, up, &up[panel..], 2 * panel, panel);
        }
        kernel(pool, inner_last, up_last, &up_last[last..], 2 * last, last);
    }
}
