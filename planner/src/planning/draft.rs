//! Speculative decoding: the draft model is placed on one device, and the model beside it.

use crate::cost::{CostModel, footprint};
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::placement::Placement;
use crate::plan::{Identity, PlacedDraft};
use crate::planning::scorer::FormatScorer;
use crate::program::{BatchSteps, RunExtent, prefill_chunk};
use crate::search::{DeviceWork, device_work};

use hwprofiles::{Bytes, DeviceId, Machine, Seconds};
use scenarios::{Model, Speculation, Workload};

/// A draft model, with the numbers of tokens that it may propose.
#[derive(Debug, Clone, Copy)]
pub struct DraftModel<'a> {
    /// The draft.
    pub model: &'a Model,
    /// The numbers of tokens to choose from.
    pub choices: &'a [Speculation],
}

/// A placed draft. The problem's machine is what the draft leaves free.
#[derive(Debug, Clone)]
pub struct DraftPlan {
    /// The draft in its place.
    pub placed: PlacedDraft,
    /// The whole machine.
    pub(crate) machine: Identity,
    /// Seconds that each device works for the draft: for the prompts, and in one step.
    pub(crate) work: DeviceWork,
}

impl DraftPlan {
    /// The plan of a draft (the model of `cost_model`) on `device` for the speculation of
    /// `workload`, and the machine that it leaves free. `None` if the draft does not fit.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn new(
        cost_model: CostModel<'_>,
        device: DeviceId,
        workload: &Workload,
        scorer: &FormatScorer<'_>,
    ) -> Result<Option<(Self, Machine)>, PlannerError> {
        let CostModel { machine, model, .. } = cost_model;
        let placement = Placement::uniform(model, device, machine.device(device).memory);
        // In the mean the draft's steps have one token each. Rejected tokens are overwritten.
        let alone = Workload { speculation: None, ..*workload };
        let chunk = prefill_chunk(&alone);
        let extent = RunExtent::from_workload(workload, chunk).for_draft(model);
        let used = footprint(cost_model, &extent, &placement)?;
        if overfilled(machine, &used).is_some() {
            return Ok(None);
        }
        let times = scorer(cost_model, alone)(&placement, chunk)?;
        let own = device_work(&cost_model, &placement, &BatchSteps::new(&alone, chunk))?;
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
        let decode = own.decode.into_iter().map(|time| time * proposed).collect();
        let work = DeviceWork { prefill: own.prefill, decode };
        Ok(left.map(|left| (Self { placed, machine: Identity::of_machine(machine), work }, left)))
    }
}
