//! The draft of speculative decoding: a small model on one device, beside which the model itself is planned.

use crate::cost::Pricing;
use crate::course::{Course, prefill_chunk};
use crate::error::PlannerError;
use crate::footprint::footprint;
use crate::formats::FormatScorer;
use crate::goal::work;
use crate::memory::{Extent, Usage};
use crate::placement::Placement;
use crate::plan::{Identity, PlanError, Times, check_identity, overfilled};
use hwprofiles::{Bytes, DeviceId, Machine, Seconds};
use scenarios::{Model, Speculation, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A draft that may be used, and how many tokens it may propose.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// It.
    pub model: &'a Model,
    /// The numbers of tokens to choose from.
    pub choices: &'a [Speculation],
}

/// A draft in its place, all of it on one device: what a plan says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedDraft {
    /// The draft.
    pub model: Identity,
    /// The device that computes it, in whose memory it lives.
    pub device: String,
    /// What it takes of each memory.
    pub memory: BTreeMap<String, Usage>,
    /// Time in which it reads the prompts, before the first token is out.
    pub prefill: Seconds,
    /// Time in which it proposes the tokens of one step.
    pub step: Seconds,
}

/// A draft beside which a question is asked: the question's machine is what it leaves.
#[derive(Debug, Clone)]
pub struct Beside {
    /// What it is, and where.
    pub placed: PlacedDraft,
    /// The whole machine.
    pub(crate) machine: Identity,
    /// Seconds that each device computes for it: for the prompts, and in one step.
    pub(crate) work: [Vec<Seconds>; 2],
}

impl PlacedDraft {
    /// What it leaves of `machine`: memories with that much less room. `None` where it does not fit.
    pub fn leaves(&self, machine: &Machine) -> Option<Machine> {
        let mut left = machine.clone();
        for (name, used) in &self.memory {
            let memory = machine.memory_named(name)?;
            let capacity = &mut left.memories[memory.0].capacity.value;
            *capacity = Bytes::new(capacity.get().checked_sub(used.total().get())?);
        }
        Some(left)
    }

    /// Where all of `model`, which must be the draft, is on `machine`.
    ///
    /// # Errors
    /// It is another model, or its device is not there.
    pub fn placement(&self, machine: &Machine, model: &Model) -> Result<Placement, PlanError> {
        check_identity("draft", &self.model, &model.name, &model.fingerprint())?;
        let known: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
        let wanted = || format!("one of {}", known.join(", "));
        let device = machine
            .device_named(&self.device)
            .ok_or_else(|| PlanError::new(&["draft", "device"], &self.device, wanted()))?;
        Ok(Placement::uniform(model, device, machine.device(device).memory))
    }

    /// The times of the model's steps and of the draft's: it reads the prompts too, and proposes before each step.
    pub(crate) fn join(&self, times: Times) -> Times {
        Times { ttft: times.ttft + self.prefill, tpot: times.tpot.map(|step| step + self.step) }
    }
}

impl Beside {
    /// `draft` (the model of that pricing) on `device`, proposing for `workload` as that says; with the machine that it
    /// leaves. `None` where it does not fit.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn new(
        pricing: Pricing<'_>,
        device: DeviceId,
        workload: &Workload,
        scorer: &FormatScorer<'_>,
    ) -> Result<Option<(Self, Machine)>, PlannerError> {
        let Pricing { machine, model, .. } = pricing;
        let placement = Placement::uniform(model, device, machine.device(device).memory);
        // Its own steps have one token each; what the model did not accept is written over.
        let alone = Workload { speculation: None, ..*workload };
        let chunk = prefill_chunk(&alone);
        let extent = Extent { step_tokens: 1, ..Extent::of(workload, chunk) };
        let used = footprint(pricing, &extent, &placement)?;
        if overfilled(machine, &used).is_some() {
            return Ok(None);
        }
        let times = scorer(pricing, &alone, &placement, chunk)?;
        let [prefill, step] = work(&pricing, &placement, &Course::of(&alone, chunk))?;
        let proposed = (workload.step_tokens() - 1) as f64;
        let names = machine.memories.iter().map(|memory| memory.name.clone());
        let placed = PlacedDraft {
            model: Identity::of_model(model),
            device: machine.device(device).name.clone(),
            memory: names.zip(used).filter(|(_, used)| used.total() > Bytes::ZERO).collect(),
            prefill: times.ttft,
            step: times.tpot.unwrap_or(Seconds::ZERO) * proposed,
        };
        let left = placed.leaves(machine);
        let work = [prefill, step.into_iter().map(|time| time * proposed).collect()];
        Ok(left.map(|left| (Self { placed, machine: Identity::of_machine(machine), work }, left)))
    }
}
