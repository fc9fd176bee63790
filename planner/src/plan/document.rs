//! The plan document: a file that a person can read and compare, and that the executor follows.

use crate::cost::{CostModel, footprint};
use crate::error::PlannerError;
use crate::memory::{MemoryUsage, overfilled};
use crate::placement::{LayerGroup, NamedSlices, Pipelining, Placement, PlanError, placement_of};
use crate::plan::identity::{Identity, PlanOrigin, check_identity};
use crate::plan::placed_draft::PlacedDraft;
use crate::program::{PhaseTimes, RunExtent};

use hwprofiles::{Dollars, FileError, Joules, Machine, Ratio, hexadecimal, yaml};
use scenarios::{Costs, Formats, Model, Objective, Slo, Workload};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Version of the document format.
pub const PLAN_VERSION: u32 = 1;

/// The planner's predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// `planned`, or the name of the rule that no solution of the solver beats.
    pub chosen: String,
    /// Roofline of the chosen placement: tasks wait only for their inputs and their lane.
    pub bound: PhaseTimes,
    /// Proven quality: the solver's lower bound, over all mixtures of its patterns and chunks,
    /// divided by the objective of the chosen placement (simulated). Absent if the chosen placement
    /// can be below that bound: a rule's placement that is no such mixture, or micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven: Option<Ratio>,
    /// The chosen placement, simulated with contention.
    pub simulated: PhaseTimes,
    /// Energy of all devices (idle and busy) per output token. Absent if the power of a device is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_per_token: Option<Joules>,
    /// Cost of machine and electricity per output token. Absent if prices are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_token: Option<Dollars>,
    /// The rules, simulated in the same way.
    pub baselines: BTreeMap<String, PhaseTimes>,
    /// The rules that cannot be followed here, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without: BTreeMap<String, String>,
    /// How it was found. Absent where nothing was searched around the solver's placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchSummary>,
}

/// How a plan was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchSummary {
    /// Placements that the simulator judged.
    pub judged: u64,
    /// The objective of the best placement of the solver and the rules, divided by the plan's: what
    /// the search around it brought.
    pub improvement: Ratio,
    /// The best of the rules with one number (layers of the GPU, layers whose experts stay with the
    /// host, a class of matrices that does), with its number. Absent where none fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_rule: Option<BestRule>,
}

/// A rule with its best number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestRule {
    /// The rule with its number.
    pub rule: String,
    /// Tokens of each sequence in a step of prefill.
    pub prefill_chunk: u64,
    /// Its times, simulated like the plan's.
    pub simulated: PhaseTimes,
    /// Its objective, divided by the plan's.
    pub regret: Ratio,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub plan: u32,
    /// Where to find the machine and the model. The program that looked them up fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PlanOrigin>,
    /// The machine it was made for.
    pub machine: Identity,
    /// The model it was made for.
    pub model: Identity,
    /// Number formats.
    pub formats: Formats,
    /// The workload it was made for.
    pub workload: Workload,
    /// The objective.
    pub objective: Objective,
    /// The limits that it keeps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slo: Slo,
    /// The prices of the objective `cost`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub costs: Costs,
    /// Tokens per sequence in one prefill step.
    pub prefill_chunk: u64,
    /// Staging slots of each device that streams, the same number for weights and for KV. Absent if
    /// two.
    #[serde(default = "default_slots", skip_serializing_if = "are_default")]
    pub staging_slots: usize,
    /// Micro-batches of each step. Absent if one.
    #[serde(default = "one_part", skip_serializing_if = "is_one_part")]
    pub micro_batches: u64,
    /// The draft that proposes tokens. Absent without a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<PlacedDraft>,
    /// The token table.
    pub embed: NamedSlices,
    /// The layers, first to last.
    pub layers: Vec<LayerGroup>,
    /// The head.
    pub head: NamedSlices,
    /// Exact bytes, by memory.
    pub memory: BTreeMap<String, MemoryUsage>,
    /// What the planner expects.
    pub predicted: Prediction,
    /// In a file, the [fingerprint](Plan::fingerprint) that the plan had when it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether the file had another digest, or none: it was edited since it was written.
    #[serde(skip)]
    pub edited: bool,
}

impl Plan {
    /// Reads a plan for `machine` and `model`, and its placement. Messages call the file `file`.
    ///
    /// # Errors
    /// Names file, line, key and value if the text is not a plan or does not match: another
    /// version, machine or model, unknown names, shares that do not add up to 1, gaps in the
    /// layers, or more bytes than a memory holds.
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
        let cost_model = CostModel { machine, model, formats: &plan.formats };
        let left = plan.beside_draft(machine).map_err(refuse)?;
        let cost_model = CostModel { machine: left.as_ref().unwrap_or(machine), ..cost_model };
        check_fit(cost_model, &plan.extent(), &placement, "layers").map_err(refuse)?;
        Ok((plan, placement))
    }

    /// Reads the document without checking it against a machine or model.
    ///
    /// # Errors
    /// Names file, line and key if the text is not a plan.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let mut plan: Self = yaml::read(text, file)?;
        let digest = plan.digest.take();
        plan.edited = digest.is_none_or(|digest| digest != plan.fingerprint());
        Ok(plan)
    }

    /// The machine with the memory that the draft leaves free. `None` without a draft.
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

    /// The document with its digest, as it goes into a file.
    pub fn sealed(&self) -> Self {
        Self { digest: Some(self.fingerprint()), ..self.clone() }
    }

    /// The document as the text of a file.
    pub fn to_yaml(&self) -> String {
        yaml::write(&self.sealed())
    }

    /// First 16 hexadecimal digits of the document's SHA-256. Traces name their plan by it.
    pub fn fingerprint(&self) -> String {
        fingerprint(&yaml::write(self))
    }

    /// The largest sizes of the plan's workload.
    pub fn extent(&self) -> RunExtent {
        RunExtent::from_workload(&self.workload, self.prefill_chunk)
    }

    /// The placement by index, for the plan's machine and model.
    ///
    /// # Errors
    /// [`PlanError`] if version, machine, model, workload or names do not match.
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
        self.placement_on(machine, model)
    }

    /// The placement by index, for any machine and model that have what it names.
    ///
    /// # Errors
    /// [`PlanError`] if they lack something, or the model has other layers.
    pub(crate) fn placement_on(&self, machine: &Machine, model: &Model) -> Result<Placement, PlanError> {
        let pipelining = Pipelining::read(self.staging_slots, self.micro_batches, self.workload.batch)?;
        placement_of(machine, model, (&self.embed, &self.layers, &self.head), pipelining)
    }
}

pub(crate) fn fingerprint(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes())[..8])
}

/// Checks that `placement` fits at `extent`. An error has the key `key` if the placement is
/// impossible.
pub(crate) fn check_fit(
    cost_model: CostModel<'_>,
    extent: &RunExtent,
    placement: &Placement,
    key: &str,
) -> Result<(), PlanError> {
    let impossible = |error: PlannerError| PlanError::new(&[key], "impossible", error.to_string());
    let used = footprint(cost_model, extent, placement).map_err(|e| impossible(e.into()))?;
    match overfilled(cost_model.machine, &used) {
        None => Ok(()),
        Some((memory, needed)) => {
            let wanted = format!("it holds {}", memory.capacity.value);
            Err(PlanError::new(&["memory", &memory.name], format!("filled with {needed}"), wanted))
        }
    }
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
