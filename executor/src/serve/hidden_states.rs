//! Hidden states on their way from a model to its MTP module, and from the module to itself.

use crate::batch::pass::Pass;
use crate::serve::session::Session;
use crate::store::locks::{POISONED, read};
use hwprofiles::DeviceId;
use kernels::KernelError;
use planner::{Action, Lane, MicroBatch};
use scenarios::{ActivationBuffer, Phase, Sublayer};
use std::collections::BTreeMap;

/// The hidden states behind the final norm that a pass has computed.
pub(super) struct HiddenStates {
    /// By slot: the position of the first row, and the rows.
    rows: BTreeMap<usize, (usize, Vec<f32>)>,
    width: usize,
}

impl HiddenStates {
    /// The same states for a session that has the sequences in other slots: pairs of old and new.
    pub fn moved(mut self, slots: impl Iterator<Item = (usize, usize)>) -> Self {
        let rows = slots.filter_map(|(from, to)| Some((to, self.rows.remove(&from)?))).collect();
        Self { rows, ..self }
    }

    /// The state of `slot` at `position`.
    ///
    /// # Panics
    /// The pass did not compute it.
    fn at(&self, slot: usize, position: usize) -> &[f32] {
        let (first, rows) = &self.rows[&slot];
        &rows[(position - first) * self.width..][..self.width]
    }
}

impl Session {
    /// The hidden states of `pass`, the last one that was run.
    ///
    /// # Errors
    /// A GPU fails.
    pub(super) fn hidden_states(&self, pass: &Pass) -> Result<HiddenStates, KernelError> {
        let engine = self.engine();
        let (store, model) = (&engine.store, &engine.setup.model);
        let width = model.hidden as usize;
        engine.gpu.as_ref().map_or(Ok(()), |gpu| gpu.accelerator().bind())?;
        let head = engine.setup.placement.head[0].device(pass.phase);
        let norm = store.vectors_at(head, None, Sublayer::Head).expect("a head has a norm");
        let norm = norm.read_back::<f32>(0..width)?;
        let mut states = HiddenStates { rows: BTreeMap::new(), width };
        let parts = MicroBatch::all(pass.parts.len() as u64).zip(&pass.parts);
        for (part, share) in parts.filter(|(_, share)| !share.spans.is_empty()) {
            let device = self.last_writer(pass.phase, part);
            let residual = read(store.activation(device, ActivationBuffer::Residual, part));
            let mut rows = residual.read_back::<f32>(0..share.rows() * width)?;
            rows.chunks_exact_mut(width).for_each(|row| rms_norm(row, &norm, model.norm_eps as f32));
            let mut rest = rows.into_iter();
            for span in &share.spans {
                let own = rest.by_ref().take(span.new * width).collect();
                states.rows.insert(share.first + span.sequence, (span.past, own));
            }
        }
        Ok(states)
    }

    /// Gives `pass` of an MTP module the states of `states`, `back` positions before each row's.
    pub(super) fn give_hidden_states(&self, pass: &Pass, states: &HiddenStates, back: usize) {
        for (part, share) in MicroBatch::all(pass.parts.len() as u64).zip(&pass.parts) {
            let mut carried = self.engine().store.carried(part).lock().expect(POISONED);
            carried.hidden.clear();
            for span in &share.spans {
                for position in span.past..span.past + span.new {
                    let row = states.at(share.first + span.sequence, position - back);
                    carried.hidden.extend_from_slice(row);
                }
            }
        }
    }

    /// The device that completes the residual: the head's has only the rows that are sampled.
    fn last_writer(&self, phase: Phase, part: MicroBatch) -> DeviceId {
        let tasks = &self.engine().programs.program(phase).tasks;
        let writer = tasks.iter().rev().find_map(|task| match (&task.action, task.lane) {
            (Action::Compute { operator, .. }, Lane::Device(device)) => (task.micro_batch == part
                && operator.writes() == ActivationBuffer::Residual)
                .then_some(device),
            _ => None,
        });
        writer.expect("every program computes the residual")
    }
}

/// x ⊙ γ ÷ √(mean(x²) + ε).
fn rms_norm(row: &mut [f32], gamma: &[f32], epsilon: f32) {
    let squares: f32 = row.iter().map(|x| x * x).sum();
    let inverse = (squares / row.len() as f32 + epsilon).sqrt().recip();
    row.iter_mut().zip(gamma).for_each(|(x, gamma)| *x *= inverse * gamma);
}
