//! The draft of speculative decoding in a plan.

use crate::memory::MemoryUsage;
use crate::placement::{Placement, PlanError};
use crate::plan::identity::{Identity, check_identity};
use crate::program::PhaseTimes;
use hwprofiles::{Bytes, Machine, Seconds};
use scenarios::Model;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A draft that is placed on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedDraft {
    /// The draft's model.
    pub model: Identity,
    /// The device that computes it and whose memory holds it.
    pub device: String,
    /// Bytes that it takes, by memory.
    pub memory: BTreeMap<String, MemoryUsage>,
    /// Time in which it processes the prompts, before the first token.
    pub prefill: Seconds,
    /// Time in which it proposes the tokens of one step.
    pub step: Seconds,
}

impl PlacedDraft {
    /// The machine with the memory that the draft leaves free. `None` if the draft does not fit.
    pub fn leaves(&self, machine: &Machine) -> Option<Machine> {
        let mut left = machine.clone();
        for (name, used) in &self.memory {
            let memory = machine.memory_named(name)?;
            let capacity = &mut left.memories[memory.0].capacity.value;
            *capacity = Bytes::new(capacity.get().checked_sub(used.total().get())?);
        }
        Some(left)
    }

    /// The draft's own placement on `machine`.
    ///
    /// # Errors
    /// `model` is not the draft, or the machine has no device of that name.
    pub fn placement(&self, machine: &Machine, model: &Model) -> Result<Placement, PlanError> {
        check_identity("draft", &self.model, &model.name, &model.fingerprint())?;
        let known: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
        let wanted = || format!("one of {}", known.join(", "));
        let device = machine
            .device_named(&self.device)
            .ok_or_else(|| PlanError::new(&["draft", "device"], &self.device, wanted()))?;
        Ok(Placement::uniform(model, device, machine.device(device).memory))
    }

    /// The model's times plus the draft's: the draft processes the prompts too, and proposes tokens
    /// before each step.
    pub(crate) fn join(&self, times: PhaseTimes) -> PhaseTimes {
        PhaseTimes { ttft: times.ttft + self.prefill, tpot: times.tpot.map(|step| step + self.step) }
    }
}
