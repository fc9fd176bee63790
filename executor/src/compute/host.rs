//! The model's operators as kernels on a device of the host.

use crate::batch::pass::{MicroBatchPass, Pass};
use crate::batch::sequence::SlotSequence;
use crate::compute::job::{OperatorJob, is_biased};
use crate::compute::routing;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::Store;
use crate::store::locks::{POISONED, read, write};
use crate::weights::fused::INTERLEAVE;
use hwprofiles::DeviceId;
use kernels::{ExpertWeights, GateFunction, Pool, Scratch, StridedRows, StridedRowsMut};
use planner::{MicroBatch, OperandSource};
use scenarios::{
    Activation, ActivationBuffer, Mixer, Model, Norm, Operator, Positions, RouterScoring, Sublayer,
};
use std::borrow::Cow;
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
            Operator::DownProj if self.model().wiring.layer_embedding.is_some() => {
                self.project_down_with_input(job);
            }
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
                    if self.model().wiring.shares_kv {
                        self.attend_shared(job);
                    } else {
                        self.attend(job);
                    }
                    self.gate_context();
                }
            },
            Operator::SharedAdd | Operator::ExpertsAdd if self.model().wiring.norms_beside => {
                self.add_normed_sum(job);
            }
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
        self.embed_for_layers(out, ids);
        if let Positions::Learned { offset } = self.model().positions {
            let places = self.store.vectors_of(self.device, None, Sublayer::Embed);
            for (out, &position) in out.chunks_exact_mut(hidden).zip(&view.positions) {
                kernels::add(self.pool, out, &places[(position + offset as usize) * hidden..][..hidden]);
            }
        }
        self.begin_streams(out);
        if self.model().wiring.module_behind.is_some() {
            self.join_hidden(out);
        }
    }

    fn norm(&self, job: OperatorJob<'_>) {
        let (from, mut to) = self.pair(ActivationBuffer::Residual, ActivationBuffer::Normed);
        let values = self.rows() * self.model().hidden as usize;
        let predicts = job.operator == Operator::AttnNorm && self.model().wiring.predicted_streams.is_some();
        let predicted = if predicts { self.predict_streams(job) } else { vec![] };
        let from = if predicts { &predicted } else { &from.view()[..values] };
        self.normalise(job, &mut to.view_mut()[..values], from);
        if job.operator == Operator::FfnNorm && self.model().wiring.layer_embedding.is_some() {
            let mut carried = self.store.carried(self.part).lock().expect(POISONED);
            from.clone_into(&mut carried.residual);
        }
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
        // The router's weights are applied in front of the router alone.
        let bare = job.operator == Operator::RouterNorm && self.model().wiring.norms_beside;
        let ones = if bare { vec![1.0; weight.len()] } else { vec![] };
        let weight = if bare { &ones } else { weight };
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
        let (mut at, x) = (first, self.own_input(job, from.view()));
        let mut count = self.store.weights(job.layer, sublayer, job.rows.start).len();
        let adds_low_rank = sublayer == Sublayer::Qkv && self.model().wiring.low_rank_residual.is_some();
        if adds_low_rank {
            count -= 2;
            self.project_low_rank(job, &x);
        }
        for weights in part.views(slot.as_ref().map(|slot| slot.bytes())).take(count) {
            let (y, x) = (StridedRowsMut::new(&mut to[at..], width), StridedRows::new(&x, columns));
            at += weights.rows();
            kernels::gemm(self.pool, rows, y, x, weights, self.scratch);
        }
        let (.., bias) = self.norm_vectors(job);
        let bias = if is_biased(self.model(), job.operator) { bias } else { &[] };
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
        let mut tokens = routing::tokens_by_expert(
            mixture,
            &routes.view::<f32>()[..rows * mixture.count as usize],
            job.rows,
        );
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, Sublayer::Experts, job.rows.start);
        let mut views = part.views(slot.as_ref().map(|slot| slot.bytes()));
        let gate = gate_function(model);
        let inner = mixture.intermediate as usize;
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Experts);
        if model.wiring.norms_beside {
            let factors = &vectors[3 * hidden + job.rows.start as usize..];
            for (tokens, factor) in tokens.iter_mut().zip(factors) {
                tokens.iter_mut().for_each(|(_, weight)| *weight *= factor);
            }
        }
        let mut biases = if model.ffn_bias { vectors } else { &[] };
        biases = &biases[biases.len().min(job.rows.start as usize * (2 * inner + hidden))..];
        let weighs_input = mixture.scoring == RouterScoring::SigmoidOfInput;
        let mut expert = |tokens| {
            let (gate_up, down) = (views.next()?, views.next()?);
            let mut bias = |rows: usize| biases.split_off(..rows.min(biases.len())).unwrap_or_default();
            let biases = [bias(2 * inner), bias(hidden)];
            Some(ExpertWeights { gate_up, down, gate, biases, weighs_input, tokens })
        };
        let experts: Vec<_> = tokens.iter().map_while(|tokens| expert(tokens)).collect();
        let x = self.own_input(job, &normed.view()[..rows * hidden]);
        kernels::experts(self.pool, sums, &x, &experts, self.scratch);
    }

    /// Adds the output of attention or of the feed-forward network to the residual, through the
    /// norm behind it where there is one.
    fn add(&self, job: OperatorJob<'_>) {
        let mut residual = write(self.lock(ActivationBuffer::Residual));
        let projected = read(self.lock(job.operator.reads()[1]));
        let (model, values) = (self.model(), self.rows() * self.model().hidden as usize);
        let (sum, made) = (&mut residual.view_mut()[..values], &projected.view()[..values]);
        let is_normed = job.operator == Operator::FfnAdd && model.wiring.layer_embedding.is_some();
        if model.wiring.predicted_streams.is_some() {
            let (weight, ..) = self.norm_vectors(job);
            return match is_normed {
                true => sum.copy_from_slice(made),
                false => self.add_to_prediction(sum, made, weight),
            };
        }
        if !model.wiring.norms_behind || is_normed {
            kernels::add(self.pool, sum, made);
        } else {
            let (weight, ..) = self.norm_vectors(job);
            kernels::add_rms_norm(self.pool, sum, made, weight, model.norm_eps as f32);
        }
        self.scale_layer(job, sum);
    }

    fn activate(&self) {
        let (up, mut inner) = self.pair(ActivationBuffer::Up, ActivationBuffer::Inner);
        let (rows, columns) = (self.rows(), self.model().intermediate as usize);
        let inner = &mut inner.view_mut::<f32>()[..rows * columns];
        let up = &up.view::<f32>()[..rows * self.model().up_width() as usize];
        let up = &cut_gates(up, self.model().wiring.gate_cutoff, columns);
        if !self.model().activation.is_gated() {
            inner.copy_from_slice(up);
        }
        match self.model().activation {
            Activation::SiluGated => gate(kernels::silu_mul, self.pool, inner, up, columns),
            Activation::GeluTanhGated => gate(kernels::gelu_mul, self.pool, inner, up, columns),
            Activation::Relu => kernels::relu(self.pool, inner),
            Activation::Gelu => kernels::gelu_erf(self.pool, inner),
            Activation::GeluTanh => kernels::gelu_tanh(self.pool, inner),
            Activation::ReluSquared => {
                kernels::relu(self.pool, inner);
                inner.iter_mut().for_each(|x| *x *= *x);
            }
            Activation::Xielu => unreachable!("it is refused before it runs"),
        }
    }
}

/// Rows of gate and up with the cutoff of each row's gates subtracted, and gates below it at 0,
/// where the layer has one: it lies `deviations` standard deviations above the row's mean.
fn cut_gates(up: &[f32], deviations: Option<f64>, columns: usize) -> Cow<'_, [f32]> {
    let Some(deviations) = deviations else { return Cow::Borrowed(up) };
    let (panel, mut cut) = (2 * INTERLEAVE as usize, up.to_vec());
    for row in cut.chunks_exact_mut(2 * columns) {
        let gates =
            || row.chunks(panel).flat_map(|both| &both[..both.len() / 2]).map(|&gate| f64::from(gate));
        let mean = gates().sum::<f64>() / columns as f64;
        let variance = gates().map(|gate| (gate - mean).powi(2)).sum::<f64>() / columns as f64;
        let cutoff = (mean + deviations * variance.sqrt()) as f32;
        for both in row.chunks_mut(panel) {
            let half = both.len() / 2;
            both[..half].iter_mut().for_each(|gate| *gate = (*gate - cutoff).max(0.0));
        }
    }
    Cow::Owned(cut)
}

/// How the experts of `shape` join gate and up.
pub(super) fn gate_function(shape: &Model) -> GateFunction {
    match (shape.wiring.gate_limit, shape.activation) {
        (Some(limit), _) => GateFunction::Limited(limit as f32),
        (None, Activation::GeluTanhGated) => GateFunction::GeluTanh,
        (None, Activation::ReluSquared) => GateFunction::SquaredRelu,
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
