//! Predicted residual streams, and a learned addition to the residual beside attention, on a device
//! of the host (Gemma 3n): a layer computes the first stream and predicts the others.

use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::store::carried::CarriedRows;
use crate::store::locks::POISONED;
use kernels::{StreamRouter, StridedRows, StridedRowsMut, WeightsView};
use scenarios::{Model, Sublayer};

/// Streams of `shape`, or 0.
fn stream_count(shape: &Model) -> usize {
    shape.wiring.predicted_streams.unwrap_or(0) as usize
}

/// The router at the start of `vectors`, and the vectors behind it.
fn split_router<'v>(shape: &Model, vectors: &'v [f32]) -> (StreamRouter<'v>, &'v [f32]) {
    let hidden = shape.hidden as usize;
    let (gamma, rest) = vectors.split_at(hidden);
    let (matrix, rest) = rest.split_at(stream_count(shape) * hidden);
    (StreamRouter { gamma, matrix, epsilon: shape.norm_eps as f32 }, rest)
}

impl HostWorker<'_> {
    /// Begins the streams: the embedding, and its projections with the embedding's magnitude.
    pub(super) fn begin_streams(&mut self, embedded: &[f32]) {
        let (count, hidden) = (stream_count(self.model()), self.model().hidden as usize);
        if count == 0 {
            return;
        }
        let rows = embedded.len() / hidden;
        let mut carried = self.store.carried(self.part).lock().expect(POISONED);
        let streams = &mut carried.streams;
        streams.resize(rows * count * hidden, 0.0);
        for (row, embedded) in streams.chunks_exact_mut(count * hidden).zip(embedded.chunks_exact(hidden)) {
            row[..hidden].copy_from_slice(embedded);
        }
        let matrices = self.store.slice(None, Sublayer::Embed, 0);
        // In front of them are the two token tables.
        for (stream, projection) in (1..).zip(matrices.views(None).skip(2)) {
            let y = StridedRowsMut::new(&mut streams[stream * hidden..], count * hidden);
            kernels::gemm(self.pool, rows, y, StridedRows::new(embedded, hidden), projection, self.scratch);
        }
        kernels::match_streams(self.pool, streams, count, hidden);
    }

    /// Predicts a layer's streams from those behind the layer before. Returns the first one, which
    /// the layer computes with.
    pub(super) fn predict_streams(&self, job: OperatorJob<'_>) -> Vec<f32> {
        let (count, hidden) = (stream_count(self.model()), self.model().hidden as usize);
        let (.., vectors) = self.norm_vectors(job);
        let (router, rest) = split_router(self.model(), vectors);
        let mut carried = self.store.carried(self.part).lock().expect(POISONED);
        kernels::predict_streams(self.pool, &mut carried.streams, &router, &rest[..count.pow(3)]);
        carried.streams.chunks_exact(count * hidden).flat_map(|row| &row[..hidden]).copied().collect()
    }

    /// Keeps x + norm(R·(L·x)), of which the last two matrices of the projection are L and R.
    pub(super) fn project_low_rank(&mut self, job: OperatorJob<'_>, x: &[f32]) {
        let (rows, hidden) = (self.rows(), self.model().hidden as usize);
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, Sublayer::Qkv, job.rows.start);
        let mut views: Vec<_> = part.views(slot.as_ref().map(|slot| slot.bytes())).collect();
        let [left, right] = views.split_off(views.len() - 2)[..] else { unreachable!("there are two") };
        let (mut short, mut long) = (vec![0.0; rows * left.rows()], vec![0.0; rows * hidden]);
        self.product(rows, &mut short, x, left);
        self.product(rows, &mut long, &short, right);
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Qkv);
        let gamma = &vectors[vectors.len() - hidden..];
        let epsilon = self.model().norm_eps as f32;
        kernels::rms_norm_heads(self.pool, &mut long, rows, hidden, 1, gamma, epsilon);
        kernels::add(self.pool, &mut long, &x[..rows * hidden]);
        self.store.carried(self.part).lock().expect(POISONED).low_rank = long;
    }

    /// Replaces the residual by (p + norm(made) + l) / √2: the first predicted stream p,
    /// attention's output through the norm behind it, and the learned addition l.
    pub(super) fn add_to_prediction(&self, residual: &mut [f32], made: &[f32], gamma: &[f32]) {
        let (count, hidden) = (stream_count(self.model()), self.model().hidden as usize);
        let carried = self.store.carried(self.part).lock().expect(POISONED);
        let predicted = carried.streams.chunks_exact(count * hidden);
        for (residual, predicted) in residual.chunks_exact_mut(hidden).zip(predicted) {
            residual.copy_from_slice(&predicted[..hidden]);
        }
        kernels::add_rms_norm(self.pool, residual, made, gamma, self.model().norm_eps as f32);
        kernels::add(self.pool, residual, &carried.low_rank);
        kernels::scale(self.pool, residual, 0.5_f32.sqrt());
    }

    /// Corrects the streams by what the layer computed, which is in `carried.residual`, and puts
    /// the scaled first one there. `vectors` are those of the correction.
    pub(super) fn correct_streams(&self, carried: &mut CarriedRows, vectors: &[f32]) {
        let (count, hidden) = (stream_count(self.model()), self.model().hidden as usize);
        if count == 0 {
            return;
        }
        let (router, rest) = split_router(self.model(), vectors);
        let (coefficients, scale) = rest.split_at(count * count);
        let CarriedRows { streams, residual, .. } = carried;
        kernels::correct_streams(self.pool, streams, residual, &router, coefficients);
        for (residual, row) in residual.chunks_exact_mut(hidden).zip(streams.chunks_exact(count * hidden)) {
            let scaled = row.iter().zip(&scale[..hidden]).map(|(x, scale)| x * scale);
            residual.iter_mut().zip(scaled).for_each(|(residual, x)| *residual = x);
        }
    }

    /// Adds `carried.residual` to all streams but the first, and writes the residual behind the
    /// layer: the first stream; behind the last layer the mean of all, each projected by its matrix
    /// of `views` and with the first one's magnitude.
    pub(super) fn add_to_streams<'v>(
        &mut self,
        carried: &mut CarriedRows,
        views: impl Iterator<Item = WeightsView<'v>>,
        out: &mut [f32],
    ) {
        let (count, hidden) = (stream_count(self.model()), self.model().hidden as usize);
        let (rows, stride) = (self.rows(), count * hidden);
        let CarriedRows { streams, residual, .. } = carried;
        for (row, added) in streams.chunks_exact_mut(stride).zip(residual.chunks_exact(hidden)) {
            for stream in row.chunks_exact_mut(hidden).skip(1) {
                stream.iter_mut().zip(added).for_each(|(x, added)| *x += added);
            }
        }
        let joins = self.model().wiring.joins_streams;
        if joins {
            let before = streams.clone();
            for (stream, projection) in (1..).zip(views) {
                let x = StridedRows::new(&before[stream * hidden..], stride);
                let y = StridedRowsMut::new(&mut streams[stream * hidden..], stride);
                kernels::gemm(self.pool, rows, y, x, projection, self.scratch);
            }
            kernels::match_streams(self.pool, streams, count, hidden);
        }
        let read = if joins { count } else { 1 };
        for (out, row) in out.chunks_exact_mut(hidden).zip(streams.chunks_exact(stride)) {
            out.copy_from_slice(&row[..hidden]);
            for stream in row.chunks_exact(hidden).take(read).skip(1) {
                out.iter_mut().zip(stream).for_each(|(out, x)| *out += x);
            }
            out.iter_mut().for_each(|out| *out /= read as f32);
        }
    }
}
