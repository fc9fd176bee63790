//! Embeddings that each layer looks up for itself, on a device of the host (Gemma 3n and 4).

use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::store::locks::POISONED;
use kernels::{StridedRows, StridedRowsMut, WeightsView};
use scenarios::{ActivationBuffer, Sublayer};

impl HostWorker<'_> {
    /// Keeps the embeddings, and looks up those of all layers, times the root of their width.
    pub(super) fn embed_for_layers(&self, embedded: &[f32], tokens: &[u32]) {
        let Some(width) = self.model().wiring.layer_embedding else { return };
        let mut carried = self.store.carried(self.part).lock().expect(POISONED);
        embedded.clone_into(&mut carried.embedded);
        let table = self.store.slice(None, Sublayer::Embed, 0);
        let table = table.views(None).nth(1).expect("the table of all layers");
        carried.for_layers.resize(tokens.len() * table.columns(), 0.0);
        kernels::gather(self.pool, &mut carried.for_layers, table, tokens);
        kernels::scale(self.pool, &mut carried.for_layers, (width as f64).sqrt() as f32);
    }

    /// The down projection and the norm behind it, and what the layer's own embedding e adds:
    /// norm(P·(gelu(G·r) ⊙ i)), with the residual r behind the network, and the layer's input
    /// i = (norm(M·x / √hidden) + e) / √2 of the token's first embedding x. With predicted streams
    /// r is the scaled first one, the others take what is added, and the result is the residual.
    pub(super) fn project_down_with_input(&mut self, job: OperatorJob<'_>) {
        let (model, rows) = (self.model(), self.rows());
        let width = model.wiring.layer_embedding.expect("a layer with an embedding of its own") as usize;
        let (hidden, epsilon) = (model.hidden as usize, model.norm_eps as f32);
        let (inner, mut to) = self.pair(ActivationBuffer::Inner, ActivationBuffer::Projected);
        let slot = self.staged(job);
        let part = self.store.slice(job.layer, Sublayer::FfnDown, job.rows.start);
        let mut views = part.views(slot.as_ref().map(|slot| slot.bytes()));
        let mut next = || views.next().expect("down, gate, the input's projection, the way back");
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::FfnDown);
        let (behind, rest) = vectors.split_at(hidden);
        let (own_behind, rest) = rest.split_at(hidden);
        let (input_norm, rest) = rest.split_at(width);
        let mut carried = self.store.carried(self.part).lock().expect(POISONED);
        let carried = &mut *carried;
        let to = &mut to.view_mut::<f32>()[..rows * hidden];
        self.product(rows, to, inner.view(), next());
        kernels::rms_norm_heads(self.pool, to, rows, hidden, 1, behind, epsilon);
        kernels::add(self.pool, &mut carried.residual, to);
        self.correct_streams(carried, rest);
        let (mut gate, mut input) = (vec![0.0; rows * width], vec![0.0; rows * width]);
        self.product(rows, &mut gate, &carried.residual, next());
        self.product(rows, &mut input, &carried.embedded, next());
        kernels::scale(self.pool, &mut input, (hidden as f32).sqrt().recip());
        kernels::rms_norm_heads(self.pool, &mut input, rows, width, 1, input_norm, epsilon);
        let first = job.layer.expect("it is in a layer") as usize * width;
        let own = carried.for_layers.chunks_exact(model.layers as usize * width);
        for (input, own) in input.chunks_exact_mut(width).zip(own) {
            input.iter_mut().zip(&own[first..]).for_each(|(x, own)| *x = (*x + own) * 0.5_f32.sqrt());
        }
        kernels::gelu_tanh(self.pool, &mut gate);
        gate.iter_mut().zip(&input).for_each(|(gate, input)| *gate *= input);
        let added = &mut carried.residual;
        self.product(rows, added, &gate, next());
        kernels::rms_norm_heads(self.pool, added, rows, hidden, 1, own_behind, epsilon);
        match model.wiring.predicted_streams {
            None => kernels::add(self.pool, to, added),
            Some(_) => self.add_to_streams(carried, views, to),
        }
    }

    /// y = x · Wᵀ for rows that follow one another.
    pub(super) fn product(&mut self, rows: usize, y: &mut [f32], x: &[f32], weights: WeightsView<'_>) {
        let (y, x) = (StridedRowsMut::new(y, weights.rows()), StridedRows::new(x, weights.columns()));
        kernels::gemm(self.pool, rows, y, x, weights, self.scratch);
    }
}
