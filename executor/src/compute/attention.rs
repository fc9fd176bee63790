//! Attention over heads on a device of the host.

use crate::compute::host::HostWorker;
use crate::compute::job::{OperatorJob, scores};
use crate::store::carried::PromptCache;
use crate::store::locks::{POISONED, read, write};
use kernels::{
    AttentionOperands, KvCache, KvCacheMut, KvShape, KvSpan, NewRows, StridedRows, StridedRowsMut,
};
use planner::OperandSource;
use scenarios::{ActivationBuffer, Model, Sublayer};
use std::sync::RwLock;

impl<'a> HostWorker<'a> {
    /// Normalises and rotates q and k, and appends k and v to the cache. In a layer with a window
    /// several tokens of a sequence are appended after attention: the cache has room for the window
    /// only, so they would replace tokens that they see.
    pub(super) fn rotate(&self, job: OperatorJob<'_>) {
        let (model, rows) = (self.model(), self.rows());
        let (heads, dim) = (model.heads as usize, model.head_dim as usize);
        let kv_heads = if model.wiring.shares_kv { 0 } else { model.kv_heads as usize };
        let width = model.qkv_width() as usize;
        let mut qkv = write(self.lock(ActivationBuffer::Qkv));
        let qkv = &mut qkv.view_mut::<f32>()[..rows * width];
        let (keys, epsilon) = (heads * dim, model.norm_eps as f32);
        // Keys that are values too are copied before they change.
        let mut both = if model.wiring.keys_are_values { twice(model, qkv) } else { vec![] };
        if model.wiring.value_norm && kv_heads > 0 {
            let (values, stride) = match &mut both[..] {
                [] => (&mut qkv[keys + kv_heads * dim..], width),
                both => (&mut both[kv_heads * dim..], 2 * kv_heads * dim),
            };
            kernels::rms_norm_heads(self.pool, values, rows, stride, kv_heads, &vec![1.0; dim], epsilon);
        }
        if model.qk_norm {
            let gammas = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
            // A norm over all heads is that of one wide head.
            let spans = |heads| if model.wiring.norms_whole_qk { (1, heads * dim) } else { (heads, dim) };
            let [(q_heads, q_width), (k_heads, k_width)] = [heads, kv_heads].map(spans);
            let (q, k) = gammas.split_at(q_width);
            kernels::rms_norm_heads(self.pool, qkv, rows, width, q_heads, q, epsilon);
            if kv_heads > 0 {
                let k = &k[..k_width];
                kernels::rms_norm_heads(self.pool, &mut qkv[keys..], rows, width, k_heads, k, epsilon);
            }
        }
        let windowed = model.wiring.window.is_some();
        let table = self.store.rotation_of(self.device, windowed).filter(|_| !model.wiring.unrotated);
        if let Some(table) = table {
            kernels::rope(self.pool, qkv, width, heads + kv_heads, dim, table, &self.view().positions);
        }
        self.follow_rotation(qkv);
        if model.wiring.shares_kv {
            return;
        }
        for (both, row) in both.chunks_exact_mut(2 * kv_heads * dim).zip(qkv.chunks_exact(width)) {
            both[..kv_heads * dim].copy_from_slice(&row[keys..][..kv_heads * dim]);
        }
        let new = match &both[..] {
            [] => new_rows(model, qkv),
            both => separate_rows(model, both),
        };
        self.append(job, new, |span| span.new == 1 || !windowed);
    }

    /// Norms and factors of q and k that come behind the rotation.
    fn follow_rotation(&self, qkv: &mut [f32]) {
        let (model, rows) = (self.model(), self.rows());
        let [heads, kv_heads, dim] = [model.heads, model.kv_heads, model.head_dim].map(|size| size as usize);
        let width = model.qkv_width() as usize;
        if model.wiring.norms_rotated_qk {
            let (all, epsilon) = (heads + kv_heads, model.norm_eps as f32);
            kernels::rms_norm_heads(self.pool, qkv, rows, width, all, &vec![1.0; dim], epsilon);
        }
        let Some(growth) = model.wiring.query_growth else { return };
        for (row, &position) in qkv.chunks_exact_mut(width).zip(&self.view().positions) {
            let factor = growth.factor(position as u64) as f32;
            row[..heads * dim].iter_mut().for_each(|query| *query *= factor);
        }
    }

    /// Appends keys and values to the cache, for the spans that are `wanted`.
    fn append(&self, job: OperatorJob<'_>, new: NewRows<'_>, wanted: impl Fn(&KvSpan) -> bool) {
        let mut cache = write(self.cache(job));
        let shape = self.cache_shape(job);
        let (keys, values) = cache.bytes_mut()[..2 * shape.bytes()].split_at_mut(shape.bytes());
        let mut cache = KvCacheMut::new(shape, keys, values).expect("the store's shape");
        let spans = KvSpan::with_rows(&self.view().spans).filter(|(_, span)| wanted(span));
        cache.append_to_ring(self.pool, spans, new);
    }

    pub(super) fn attend(&mut self, job: OperatorJob<'_>) {
        let model = self.model();
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let cache = read(self.cache(job));
        let appends = self.appends_late();
        let new = appends.then(|| new_rows(model, qkv.view()));
        self.attend_to(job, self.cache_shape(job), cache.bytes(), qkv.view(), new, context.view_mut());
        if !appends {
            return;
        }
        let layer = job.layer.expect("attention is in a layer");
        if self.store.is_shared(layer) {
            let width = (model.qkv_width() - model.heads * model.head_dim) as usize;
            let rows = qkv.view::<f32>().chunks_exact(model.qkv_width() as usize).take(self.rows());
            let new = rows.flat_map(|row| &row[row.len() - width..]).copied().collect();
            let kept = PromptCache { ring: cache.bytes().to_vec(), new };
            self.store.carried(self.part).lock().expect(POISONED).prompts.insert(layer, kept);
        }
        drop(cache);
        self.append(job, new_rows(model, qkv.view()), |span| span.new > 1);
    }

    /// Attends to the cache of an earlier layer, where it lies: as that layer did, before a prompt
    /// replaced tokens of its ring.
    pub(super) fn attend_shared(&mut self, job: OperatorJob<'_>) {
        let model = self.model();
        let layer = self.store.cache_layer(job.layer.expect("attention is in a layer"));
        let shape = self.store.kv_shape(layer, self.part);
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let context = context.view_mut();
        if self.appends_late() {
            let carried = self.store.carried(self.part).lock().expect(POISONED);
            let kept = &carried.prompts[&layer];
            let new = Some(separate_rows(model, &kept.new));
            return self.attend_to(job, shape, &kept.ring, qkv.view(), new, context);
        }
        let cache = read(self.store.kv(layer, self.part));
        self.attend_to(job, shape, cache.bytes(), qkv.view(), None, context);
    }

    /// Whether tokens of this pass are appended to the layer's cache after attention.
    fn appends_late(&self) -> bool {
        self.model().wiring.window.is_some() && self.view().spans.iter().any(|span| span.new > 1)
    }

    fn attend_to(
        &mut self,
        job: OperatorJob<'_>,
        shape: KvShape,
        cache: &[u8],
        qkv: &[f32],
        new: Option<NewRows<'_>>,
        context: &mut [f32],
    ) {
        let model = self.model();
        let (q_width, width) = (model.qkv_width() as usize, model.context_width() as usize);
        let (keys, values) = cache[..2 * shape.bytes()].split_at(shape.bytes());
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let operands = AttentionOperands {
            heads: model.heads as usize,
            scores: scores(model, job),
            sinks: if model.wiring.sinks { &vectors[vectors.len() - model.heads as usize..] } else { &[] },
            out: StridedRowsMut::new(&mut context[..self.rows() * width], width),
            q: StridedRows::new(qkv, q_width),
            cache: KvCache::new(shape, keys, values).expect("the store's shape"),
            new,
            spans: &self.pass.parts[self.part.index as usize].spans,
        };
        kernels::attention(self.pool, operands, self.scratch);
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
}

/// Keys and values of new tokens within rows of q, k and v.
fn new_rows<'q>(shape: &Model, qkv: &'q [f32]) -> NewRows<'q> {
    let keys = (shape.heads * shape.head_dim) as usize;
    let (keys, values) = (&qkv[keys..], &qkv[keys + shape.kv_width() as usize..]);
    NewRows { keys, values, stride: shape.qkv_width() as usize }
}

/// Keys and values of new tokens in rows of their own.
fn separate_rows<'q>(shape: &Model, both: &'q [f32]) -> NewRows<'q> {
    let width = shape.kv_width() as usize;
    NewRows { keys: both, values: &both[width..], stride: 2 * width }
}

/// The keys within rows of q and k, twice in each row.
fn twice(shape: &Model, qkv: &[f32]) -> Vec<f32> {
    let keys = (shape.heads * shape.head_dim) as usize;
    let rows = qkv.chunks_exact(shape.qkv_width() as usize).map(|row| &row[keys..]);
    rows.flat_map(|keys| [keys, keys]).flatten().copied().collect()
}
