//! Gated delta nets, Mamba-2 and gated attention on a device of the host.

use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::store::locks::write;
use kernels::{DeltaNet, DeltaRows, DeltaState, KvSpan, StridedRows, StridedRowsMut};
use scenarios::{ActivationBuffer, Recurrence, Sublayer};

/// The widths of a gated delta net; of Mamba-2, whose state and convolution have the same shapes,
/// groups are heads of keys.
pub(super) fn delta_net(recurrence: Recurrence, tiled: bool) -> DeltaNet {
    let sizes = match recurrence {
        Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps } => {
            [key_heads, value_heads, key_dim, value_dim, taps]
        }
        Recurrence::Mamba2 { heads, head_dim, groups, state, taps } => [groups, heads, state, head_dim, taps],
        _ => unreachable!("`check_runnable` refuses other recurrences"),
    };
    let [key_heads, value_heads, key_dim, value_dim, taps] = sizes.map(|size| size as usize);
    DeltaNet { key_heads, value_heads, tiled, key_dim, value_dim, taps }
}

/// How a sequence's cache is laid out where proposed tokens are verified. Behind the matrices and
/// the convolution's inputs, which are those of some first tokens, are the inputs of the tokens
/// that entered last, their rows behind the convolution, and the number of first tokens. Only once
/// it is known which of the last tokens stay do they change the matrices.
#[derive(Debug, Clone, Copy)]
struct UnverifiedLayout {
    net: DeltaNet,
    /// The most tokens that can be taken back.
    tokens: usize,
    /// Values of a row.
    width: usize,
}

impl UnverifiedLayout {
    fn len(&self) -> usize {
        self.net.kept() + self.tokens * (self.net.channels() + self.width) + 1
    }

    /// Inputs of the convolution: the last ones of the first tokens, and those of later tokens.
    fn inputs(self, kept: &mut [f32]) -> &mut [f32] {
        let (first, len) = (self.net.matrices(), self.net.inputs() + self.tokens * self.net.channels());
        &mut kept[first..first + len]
    }

    /// The rows of later tokens.
    fn rows(self, kept: &mut [f32]) -> &mut [f32] {
        let first = self.net.kept() + self.tokens * self.net.channels();
        &mut kept[first..first + self.tokens * self.width]
    }

    /// The number of first tokens in front of `span`.
    fn first_tokens(self, kept: &[f32], span: &KvSpan) -> usize {
        if span.past == 0 { 0 } else { kept[self.len() - 1].to_bits() as usize }
    }

    /// How many of the later tokens stay in front of `span`.
    ///
    /// # Panics
    /// More tokens are taken back than entered last.
    fn verified(self, kept: &[f32], span: &KvSpan) -> usize {
        let verified = span.past.checked_sub(self.first_tokens(kept, span));
        verified.filter(|&count| count <= self.tokens).expect("only the last tokens are taken back")
    }

    /// Whether the tokens of `span` can be taken back.
    fn keeps(self, span: &KvSpan) -> bool {
        span.new <= self.tokens
    }

    fn set_first_tokens(self, kept: &mut [f32], count: usize) {
        kept[self.len() - 1] = f32::from_bits(count as u32);
    }
}

/// The same spans as sequences that follow one another.
fn packed_spans(spans: &[KvSpan]) -> Vec<KvSpan> {
    spans.iter().zip(0..).map(|(span, sequence)| KvSpan { sequence, ..*span }).collect()
}

impl HostWorker<'_> {
    /// The layout of sequences where tokens are proposed and may be taken back; otherwise `None`.
    fn unverified(&self, net: DeltaNet) -> Option<UnverifiedLayout> {
        let tokens = self.setup.extent.step_tokens as usize;
        (tokens > 1).then(|| UnverifiedLayout { net, tokens, width: self.model().qkv_width() as usize })
    }

    /// Convolves q, k and v, or x, B and C.
    pub(super) fn convolve(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) {
        let (net, width) = (delta_net(recurrence, self.store.tiled_heads), self.model().qkv_width() as usize);
        let mut qkv = write(self.lock(ActivationBuffer::Qkv));
        let mut state = write(self.cache(job));
        let weights = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let (weights, rest) = weights.split_at(net.channels() * net.taps);
        let biased = matches!(recurrence, Recurrence::Mamba2 { .. });
        let bias = if biased { &rest[..net.channels()] } else { &[] };
        let qkv = &mut qkv.view_mut::<f32>()[..self.rows() * width];
        let (state, spans) = (state.view_mut::<f32>(), &self.view().spans);
        let convolve = |rows: &mut [f32], state: &mut [f32], spans: &[KvSpan]| {
            let mut rows = StridedRowsMut::new(rows, width);
            kernels::delta_convolve(
                self.pool,
                &net,
                [weights, bias],
                &mut rows,
                &mut DeltaState(state),
                spans,
            );
        };
        let Some(layout) = self.unverified(net) else { return convolve(qkv, state, spans) };
        let (channels, inputs) = (net.channels(), net.inputs());
        let mut states = vec![0.0; spans.len() * net.kept()];
        for ((span, own), (row, _)) in
            spans.iter().zip(states.chunks_exact_mut(net.kept())).zip(KvSpan::with_rows(spans))
        {
            let kept = &mut state[span.sequence * layout.len()..][..layout.len()];
            let verified = layout.verified(kept, span);
            let all = layout.inputs(kept);
            all.copy_within(verified * channels..verified * channels + inputs, 0);
            if span.past == 0 {
                all[..inputs].fill(0.0);
            }
            own[net.matrices()..].copy_from_slice(&all[..inputs]);
            if layout.keeps(span) {
                let rows = qkv[row * width..].chunks_exact(width).take(span.new);
                for (kept, row) in all[inputs..].chunks_exact_mut(channels).zip(rows) {
                    kept.copy_from_slice(&row[..channels]);
                }
            }
        }
        convolve(qkv, &mut states, &packed_spans(spans));
        for (span, own) in spans.iter().zip(states.chunks_exact(net.kept())) {
            if !layout.keeps(span) {
                let kept = &mut state[span.sequence * layout.len()..][..layout.len()];
                layout.inputs(kept)[..inputs].copy_from_slice(&own[net.matrices()..]);
            }
        }
    }

    /// The recurrence, and the norm and the gate behind it.
    pub(super) fn recur(&mut self, job: OperatorJob<'_>, recurrence: Recurrence) {
        let (net, model) = (delta_net(recurrence, self.store.tiled_heads), self.model());
        let (width, columns) = (model.context_width() as usize, model.qkv_width() as usize);
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let mut state = write(self.cache(job));
        let vectors = self.store.vectors_of(self.device, job.layer, Sublayer::Attention);
        let epsilon = model.norm_eps as f32;
        let rest = &vectors[net.channels() * net.taps..];
        let recur = |rows: &[f32], state: &mut [f32], spans: &[KvSpan], out: &mut [f32]| {
            let projected = StridedRows::new(rows, columns);
            let (mut state, out) = (DeltaState(state), StridedRowsMut::new(out, width));
            if matches!(recurrence, Recurrence::Mamba2 { .. }) {
                let (log_rates, rest) = rest[net.channels()..].split_at(net.value_heads);
                let (step_bias, rest) = rest.split_at(net.value_heads);
                let (skip, gamma) = rest.split_at(net.value_heads);
                let rows = DeltaRows { projected, log_rates, step_bias, gamma, epsilon };
                return kernels::mamba2(self.pool, &net, rows, skip, &mut state, spans, out);
            }
            let (log_rates, rest) = rest.split_at(net.value_heads);
            let (step_bias, gamma) = rest.split_at(net.value_heads);
            let rows = DeltaRows { projected, log_rates, step_bias, gamma, epsilon };
            kernels::gated_delta(self.pool, &net, rows, &mut state, spans, out);
        };
        let (qkv, state, spans) = (qkv.view::<f32>(), state.view_mut::<f32>(), &self.view().spans);
        let out = &mut context.view_mut::<f32>()[..self.rows() * width];
        match self.unverified(net) {
            None => recur(qkv, state, spans, out),
            Some(layout) => recur_unverified(layout, qkv, state, spans, out, recur),
        }
    }

    /// Multiplies attention's output by the sigmoid of its gate, where it has one.
    pub(super) fn gate_context(&self) {
        let model = self.model();
        if !model.wiring.output_gate {
            return;
        }
        let (qkv, mut context) = self.pair(ActivationBuffer::Qkv, ActivationBuffer::Context);
        let (from, width) = (model.qkv_width() as usize, model.context_width() as usize);
        let rows = qkv.view::<f32>().chunks_exact(from).take(self.rows());
        for (row, out) in rows.zip(context.view_mut::<f32>().chunks_exact_mut(width)) {
            let gate = &row[from - width..];
            out.iter_mut().zip(gate).for_each(|(out, gate)| *out /= 1.0 + (-gate).exp());
        }
    }
}

/// Runs `recur` (rows, states, spans, out) over the verified ones of the tokens that entered last,
/// and on copies of the states over the rows of `spans`, which may be taken back.
fn recur_unverified(
    layout: UnverifiedLayout,
    qkv: &[f32],
    state: &mut [f32],
    spans: &[KvSpan],
    out: &mut [f32],
    recur: impl Fn(&[f32], &mut [f32], &[KvSpan], &mut [f32]),
) {
    let UnverifiedLayout { net, width, .. } = layout;
    let mut states = vec![0.0; spans.len() * net.kept()];
    let (mut rows, mut verified_spans) = (vec![], vec![]);
    let each = || spans.iter().zip(0..);
    for ((span, sequence), own) in each().zip(states.chunks_exact_mut(net.kept())) {
        let kept = &mut state[span.sequence * layout.len()..][..layout.len()];
        own[..net.matrices()].copy_from_slice(&kept[..net.matrices()]);
        let (past, new) = (layout.first_tokens(kept, span), layout.verified(kept, span));
        if new > 0 {
            rows.extend_from_slice(&layout.rows(kept)[..new * width]);
            verified_spans.push(KvSpan { sequence, past, new });
        }
    }
    let unread = row_count(&verified_spans) * (out.len() / row_count(spans));
    recur(&rows, &mut states, &verified_spans, &mut vec![0.0; unread]);
    let keep = |state: &mut [f32], span: &KvSpan, own: &[f32], first: usize| {
        let kept = &mut state[span.sequence * layout.len()..][..layout.len()];
        kept[..net.matrices()].copy_from_slice(&own[..net.matrices()]);
        layout.set_first_tokens(kept, first);
    };
    for (span, own) in spans.iter().zip(states.chunks_exact(net.kept())) {
        keep(state, span, own, span.past);
    }
    recur(qkv, &mut states, &packed_spans(spans), out);
    for ((span, own), (row, _)) in
        spans.iter().zip(states.chunks_exact(net.kept())).zip(KvSpan::with_rows(spans))
    {
        if layout.keeps(span) {
            let kept = &mut state[span.sequence * layout.len()..][..layout.len()];
            let new = &qkv[row * width..][..span.new * width];
            layout.rows(kept)[..new.len()].copy_from_slice(new);
        } else {
            keep(state, span, own, span.past + span.new);
        }
    }
}

fn row_count(spans: &[KvSpan]) -> usize {
    spans.iter().map(|span| span.new).sum()
}
