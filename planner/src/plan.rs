//! The plan document: the promise. A file that a person can read, diff and hand to the executor.

use crate::draft::PlacedDraft;
use crate::footprint::footprint;
use crate::layer_group::{LayerGroup, named, placement_of};
use crate::memory::Usage;
use crate::part::Parts;
use crate::pipelining::Pipelining;
use crate::placement::Placement;
use crate::{Extent, PlannerError, Pricing, Question};
use hwprofiles::{Bytes, Dollars, FileError, Joules, Machine, Memory, Ratio, Seconds, yaml};
use scenarios::{Costs, Formats, MachineSource, Model, Objective, Slo, Workload};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Version of the document's form.
pub const PLAN_VERSION: u32 = 1;

/// A name, and a fingerprint of the content behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Name, for people.
    pub name: String,
    /// First 16 hexadecimal digits of the content's SHA-256.
    pub fingerprint: String,
}

impl Identity {
    /// That of a machine.
    pub fn of_machine(machine: &Machine) -> Self {
        Self { name: machine.name.clone(), fingerprint: machine.fingerprint() }
    }

    pub(crate) fn of_model(model: &Model) -> Self {
        Self { name: model.name.clone(), fingerprint: model.fingerprint() }
    }
}

/// Where to find the machine and the model again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The machine: a name, a path, or parts.
    pub machine: MachineSource,
    /// The model: a preset's name, or a path.
    pub model: String,
    /// Exponent of Zipf's law by which tokens choose the model's experts; absent where that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert_skew: Option<f64>,
    /// The draft: a preset's name, or a path; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// How many of the machine's GPUs compute as one device; absent where each does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_parallel: Option<u64>,
}

/// What a user waits for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Time to the first token.
    pub ttft: Seconds,
    /// Time per output token after the first; absent where one token is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Seconds>,
}

/// What the planner expects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// What was chosen: `planned`, or the name of the rule that no plan of the solver beat.
    pub chosen: String,
    /// The chosen placement's roofline: nothing waits for anything but its inputs and its lane.
    pub bound: Times,
    /// Which share of the objective of the chosen placement, simulated, the solver proved that no mixture of the patterns
    /// and chunks that it looks at goes below. Absent where something else does: a rule that is no such mixture, or
    /// micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven: Option<Ratio>,
    /// The chosen placement, simulated with contention.
    pub simulated: Times,
    /// What the devices draw, waiting and computing, per output token, where the power of each is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_per_token: Option<Joules>,
    /// What the machine and its electricity cost per output token, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_token: Option<Dollars>,
    /// The rules that do not look at speeds, simulated in the same way.
    pub baselines: BTreeMap<String, Times>,
    /// The rules that cannot be followed here, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without: BTreeMap<String, String>,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub plan: u32,
    /// Where to find the machine and the model again; whoever looked them up fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Origin>,
    /// The machine it was made for.
    pub machine: Identity,
    /// The model it was made for.
    pub model: Identity,
    /// Number formats.
    pub formats: Formats,
    /// The load it was made for.
    pub workload: Workload,
    /// What it is best at.
    pub objective: Objective,
    /// What it keeps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slo: Slo,
    /// What the objective `cost` was reckoned with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub costs: Costs,
    /// Tokens per sequence that enter in one prefill step.
    pub prefill_chunk: u64,
    /// Staging slots of each device that streams, so many for weights and as many for KV; absent where they are two.
    #[serde(default = "default_slots", skip_serializing_if = "are_default")]
    pub staging_slots: usize,
    /// Parts into which the batch of each step is divided; absent where it is not.
    #[serde(default = "one_part", skip_serializing_if = "is_one_part")]
    pub micro_batches: u64,
    /// The draft that proposes tokens; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<PlacedDraft>,
    /// The token table.
    pub embed: Parts,
    /// The layers, first to last.
    pub layers: Vec<LayerGroup>,
    /// The head.
    pub head: Parts,
    /// Exact bytes by memory.
    pub memory: BTreeMap<String, Usage>,
    /// What the planner expects.
    pub predicted: Prediction,
}

/// A plan that does not fit what it is used with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is {value}: {wanted}", path.join("."))]
pub struct PlanError {
    /// Path of the key in the plan.
    pub path: Vec<String>,
    /// What stands there.
    pub value: String,
    /// What would be right.
    pub wanted: String,
}

impl PlanError {
    pub(crate) fn new(path: &[&str], value: impl ToString, wanted: impl Into<String>) -> Self {
        let path = path.iter().map(|&step| step.to_owned()).collect();
        Self { path, value: value.to_string(), wanted: wanted.into() }
    }

    pub(crate) fn under(mut self, outer: [String; 2]) -> Self {
        self.path.splice(0..0, outer);
        self
    }
}

impl Plan {
    /// Reads a plan for `machine` and `model`, with its placement; `file` is its name in messages.
    ///
    /// # Errors
    /// Names file, line, key and value of what is not a plan or not one for these: another version, machine or
    /// model, unknown names, shares that do not add up, gaps in the layers, more than a memory holds.
    pub fn read(
        text: &str,
        file: &str,
        machine: &Machine,
        model: &Model,
    ) -> Result<(Self, Placement), FileError> {
        let plan = Self::from_yaml(text, file)?;
        let refuse = |error: PlanError| {
            let path: Vec<_> = error.path.iter().map(String::as_str).collect();
            yaml::refuse(text, file, &path, format!("is {}: {}", error.value, error.wanted))
        };
        let placement = plan.placement(machine, model).map_err(refuse)?;
        let pricing = Pricing { machine, model, formats: &plan.formats };
        let left = plan.beside_draft(machine).map_err(refuse)?;
        let pricing = Pricing { machine: left.as_ref().unwrap_or(machine), ..pricing };
        check_fit(pricing, &plan.extent(), &placement, "layers").map_err(refuse)?;
        Ok((plan, placement))
    }

    /// Reads the document alone, without asking what it is for.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        yaml::read(text, file)
    }

    /// What the draft leaves of the machine, where there is one.
    fn beside_draft(&self, machine: &Machine) -> Result<Option<Machine>, PlanError> {
        let Some(draft) = &self.draft else { return Ok(None) };
        let Some(device) = machine.device_named(&draft.device) else {
            let known: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
            return Err(PlanError::new(
                &["draft", "device"],
                &draft.device,
                format!("one of {}", known.join(", ")),
            ));
        };
        let wanted = || format!("what fits beside device '{}' is wanted", machine.device(device).name);
        let left = draft.leaves(machine);
        left.map(Some).ok_or_else(|| PlanError::new(&["draft", "memory"], "more than there is", wanted()))
    }

    /// The document as a file.
    pub fn to_yaml(&self) -> String {
        yaml::write(self)
    }

    /// First 16 hexadecimal digits of the file's SHA-256: what traces say they follow.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::digest(self.to_yaml().as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The largest sizes that the plan's workload reaches.
    pub fn extent(&self) -> Extent {
        Extent::of(&self.workload, self.prefill_chunk)
    }

    /// The placement by index, for the machine and model that the plan was made for.
    pub fn placement(&self, machine: &Machine, model: &Model) -> Result<Placement, PlanError> {
        if self.plan != PLAN_VERSION {
            let wanted = format!("this program reads version {PLAN_VERSION}: make the plan anew");
            return Err(PlanError::new(&["plan"], self.plan, wanted));
        }
        check_identity("machine", &self.machine, &machine.name, &machine.fingerprint())?;
        check_identity("model", &self.model, &model.name, &model.fingerprint())?;
        self.workload
            .check(model)
            .map_err(|error| PlanError::new(&["workload"], "impossible", error.to_string()))?;
        if !(1..=self.workload.prompt_tokens).contains(&self.prefill_chunk) {
            let wanted = format!("from 1 to the {} prompt tokens", self.workload.prompt_tokens);
            return Err(PlanError::new(&["prefill_chunk"], self.prefill_chunk, wanted));
        }
        let pipelining = Pipelining::read(self.staging_slots, self.micro_batches, self.workload.batch)?;
        placement_of(machine, model, (&self.embed, &self.layers, &self.head), pipelining)
    }

    /// The document for `placement`, in which equal neighbours become one group; `known` is the machine's identity, where somebody
    /// looked.
    ///
    /// # Errors
    /// Where bytes must move without a link, or more is needed of a memory than it holds.
    pub(crate) fn of(
        question: &Question<'_>,
        known: Option<&Identity>,
        prefill_chunk: u64,
        placement: &Placement,
        predicted: Prediction,
    ) -> Result<Self, PlannerError> {
        let Question { pricing, workload, objective, slo, costs, draft } = *question;
        let Pricing { machine, model, formats } = pricing;
        let (embed, layers, head) = named(machine, model, placement);
        let extent = Extent::of(&workload, prefill_chunk);
        let used = footprint(pricing, &extent, placement)?;
        // What is in a striped memory is counted where it lies.
        let memories = machine.memories.iter().zip(&used).filter(|(memory, _)| memory.stripes.is_empty());
        let memory = memories.map(|(memory, used)| (memory.name.clone(), *used)).collect();
        let plan = Self {
            plan: PLAN_VERSION,
            from: None,
            machine: match (draft, known) {
                (Some(draft), _) => draft.machine.clone(),
                (None, Some(known)) => known.clone(),
                (None, None) => Identity::of_machine(machine),
            },
            model: Identity::of_model(model),
            formats: *formats,
            workload,
            objective,
            slo,
            costs,
            prefill_chunk,
            staging_slots: placement.pipelining.slots,
            micro_batches: placement.pipelining.micro_batches,
            draft: draft.map(|draft| draft.placed.clone()),
            embed,
            layers,
            head,
            memory,
            predicted,
        };
        match overfilled(machine, &used) {
            None => Ok(plan),
            Some((memory, needed)) => Err(PlannerError::TooLarge {
                memory: memory.name.clone(),
                needed,
                capacity: memory.capacity.value,
            }),
        }
    }
}

/// Whether `placement` fits at `extent`; an error of the key `key` where it cannot be.
pub(crate) fn check_fit(
    pricing: Pricing<'_>,
    extent: &Extent,
    placement: &Placement,
    key: &str,
) -> Result<(), PlanError> {
    let impossible = |error: PlannerError| PlanError::new(&[key], "impossible", error.to_string());
    let used = footprint(pricing, extent, placement).map_err(|e| impossible(e.into()))?;
    match overfilled(pricing.machine, &used) {
        None => Ok(()),
        Some((memory, needed)) => {
            let wanted = format!("it holds {}", memory.capacity.value);
            Err(PlanError::new(&["memory", &memory.name], format!("filled with {needed}"), wanted))
        }
    }
}

/// The first memory that is used beyond its capacity, and how much it would have to hold.
pub(crate) fn overfilled<'m>(machine: &'m Machine, used: &[Usage]) -> Option<(&'m Memory, Bytes)> {
    let totals = machine.memories.iter().zip(used.iter().map(Usage::total));
    totals.into_iter().find(|(memory, total)| *total > memory.capacity.value)
}

fn one_part() -> u64 {
    1
}

fn is_one_part(parts: &u64) -> bool {
    *parts == one_part()
}

fn default_slots() -> usize {
    Pipelining::default().slots
}

fn are_default(slots: &usize) -> bool {
    *slots == default_slots()
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn check_identity(
    key: &str,
    ours: &Identity,
    name: &str,
    fingerprint: &str,
) -> Result<(), PlanError> {
    if ours.fingerprint == fingerprint {
        return Ok(());
    }
    let value = format!("'{}' ({})", ours.name, ours.fingerprint);
    let wanted = format!("this {key} is '{name}' ({fingerprint}); make a plan for it with `fulcrum plan`");
    Err(PlanError::new(&[key], value, wanted))
}
