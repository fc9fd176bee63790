//! What an MTP module computes in front of its layer, on a device of the host.

use crate::compute::host::HostWorker;
use crate::store::locks::POISONED;
use scenarios::Sublayer;

impl HostWorker<'_> {
    /// Replaces each token's embedding e by W·\[norm(e); norm(h)\] with the hidden state h that the
    /// session was given for it.
    pub(super) fn join_hidden(&mut self, embedded: &mut [f32]) {
        let (width, epsilon) = (self.model().hidden as usize, self.model().norm_eps as f32);
        let rows = embedded.len() / width;
        let mut joined = vec![0.0; 2 * embedded.len()];
        let carried = self.store.carried(self.part).lock().expect(POISONED);
        let inputs = embedded.chunks_exact(width).zip(carried.hidden.chunks_exact(width));
        for (joined, (embedding, hidden)) in joined.chunks_exact_mut(2 * width).zip(inputs) {
            joined[..width].copy_from_slice(embedding);
            joined[width..].copy_from_slice(hidden);
        }
        let norms = self.store.vectors_of(self.device, None, Sublayer::Embed);
        for (first, norm) in [0, width].into_iter().zip(norms.chunks_exact(width)) {
            kernels::rms_norm_heads(self.pool, &mut joined[first..], rows, 2 * width, 1, norm, epsilon);
        }
        let matrices = self.store.slice(None, Sublayer::Embed, 0);
        let projection = matrices.views(None).nth(1).expect("behind the token table");
        self.product(rows, embedded, &joined, projection);
    }
}
