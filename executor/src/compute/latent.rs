//! Latent attention on a device of the host.

use crate::compute::host::HostWorker;
use crate::compute::job::{OperatorJob, scores};
use crate::store::locks::{read, write};
use kernels::{KvShape, LatentOperands, LatentShape, StridedRows, StridedRowsMut};
use scenarios::{ActivationBuffer, LatentAttention, Sublayer};

/// The ε of the norms inside latent attention. Every model of the family has this one, whatever the
/// ε of its other norms.
const INNER_EPSILON: f32 = 1e-6;

impl HostWorker<'_> {
    /// Projects the queries, in two steps where they are expanded from a shorter vector, and the
    /// latent vector with the rotated key.
    pub(super) fn project_latent(&mut self, job: OperatorJob<'_>) {
        let (model, rows) = (self.model(), self.rows());
        let latent = model.latent().expect("latent attention");
        let (from, mut to) = self.pair(ActivationBuffer::Normed, ActivationBuffer::Qkv);
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, Sublayer::Qkv, job.rows.start);
        let mut views = part.views(slot.as_ref().map(|slot| slot.bytes()));
        let mut next = || views.next().expect("the matrices in front of latent attention");
        let (.., norms) = self.norm_vectors(job);
        let (query_norm, latent_norm) = norms.split_at(norms.len() - latent.kv_rank as usize);
        let (width, queries) = (model.qkv_width() as usize, (model.heads * model.head_dim) as usize);
        let to = &mut to.view_mut::<f32>()[..rows * width];
        let x = StridedRows::new(from.view(), model.hidden as usize);
        match latent.q_rank {
            None => {
                kernels::gemm(self.pool, rows, StridedRowsMut::new(to, width), x, next(), self.scratch);
            }
            Some(rank) => {
                let rank = rank as usize;
                let mut short = vec![0.0; rows * rank];
                let y = StridedRowsMut::new(&mut short, rank);
                kernels::gemm(self.pool, rows, y, x, next(), self.scratch);
                kernels::rms_norm_heads(self.pool, &mut short, rows, rank, 1, query_norm, INNER_EPSILON);
                let (y, x) = (StridedRowsMut::new(to, width), StridedRows::new(&short, rank));
                kernels::gemm(self.pool, rows, y, x, next(), self.scratch);
            }
        }
        let latents = &mut to[queries..];
        let y = StridedRowsMut::new(latents, width);
        kernels::gemm(self.pool, rows, y, x, next(), self.scratch);
        kernels::rms_norm_heads(self.pool, latents, rows, width, 1, latent_norm, INNER_EPSILON);
    }

    /// Rotates the last columns of each query and of the key, and appends the latent vector and the
    /// key to the cache.
    pub(super) fn rotate_latent(&mut self, job: OperatorJob<'_>, latent: LatentAttention) {
        let (model, rows) = (self.model(), self.rows());
        let (heads, dim) = (model.heads as usize, model.head_dim as usize);
        let (width, rope) = (model.qkv_width() as usize, latent.rope_dim as usize);
        let mut qkv = write(self.lock(ActivationBuffer::Qkv));
        let qkv = &mut qkv.view_mut::<f32>()[..rows * width];
        let table = self.store.rotation_of(self.device, false).expect("latent attention rotates");
        let queries = (0..heads).map(|head| head * dim + latent.nope_dim as usize);
        for first in queries.chain([heads * dim + latent.kv_rank as usize]) {
            kernels::rope(self.pool, &mut qkv[first..], width, 1, rope, table, &self.view().positions);
        }
        let layout = *self.store.cache_layout(job.layer.expect("attention is in a layer"));
        let mut cache = write(self.cache(job));
        let entries = layout.entries(&[]);
        let shape = KvShape {
            dtype: entries.dtype,
            sequences: 1,
            kv_heads: 1,
            capacity: entries.capacity,
            head_dim: latent.kv_numbers() as usize,
        };
        let mut new = qkv.chunks_exact(width);
        for span in &self.view().spans {
            let places = layout.written(span).expect("entries");
            // The entries come first: `zip` takes one of them before it asks for a row.
            let places = cache.bytes_mut()[places].chunks_exact_mut(shape.row_bytes());
            for (entry, row) in places.zip(&mut new) {
                shape.write_row(&row[heads * dim..], entry);
            }
        }
    }

    /// Attends to the cache's entries.
    pub(super) fn attend_latent(&mut self, job: OperatorJob<'_>, latent: LatentAttention) {
        let model = self.model();
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let cache = read(self.cache(job));
        let width = model.context_width() as usize;
        let shape = LatentShape {
            heads: model.heads as usize,
            nope: latent.nope_dim as usize,
            rope: latent.rope_dim as usize,
            rank: latent.kv_rank as usize,
            value: latent.v_dim as usize,
        };
        let layout = self.store.cache_layout(job.layer.expect("attention is in a layer"));
        let operands = LatentOperands {
            shape,
            scale: scores(model, job).scale,
            expansion: self.store.vectors_of(self.device, job.layer, Sublayer::Attention),
            q: StridedRows::new(qkv.view(), model.qkv_width() as usize),
            cache: layout.entries(cache.bytes()),
            spans: &self.pass.parts[self.part.index as usize].spans,
            out: StridedRowsMut::new(&mut context.view_mut::<f32>()[..self.rows() * width], width),
        };
        kernels::latent_attention(self.pool, operands, self.scratch);
    }
}
