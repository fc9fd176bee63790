//! The plan document: the promise. A file that a person can read, diff and hand to the executor.

use crate::footprint::footprint;
use crate::memory::Usage;
use crate::part::Parts;
use crate::placement::{LayerPlacement, Placement};
use crate::{Extent, PlannerError, Pricing, Question};
use hwprofiles::{Bytes, Dollars, FileError, Joules, Machine, Memory, Ratio, Seconds, yaml};
use scenarios::{Costs, Formats, MachineSource, Model, Objective, Slo, Sublayer, Workload};
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
}

/// Layers placed alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// First layer.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Parts of the fused q, k, v projection.
    pub qkv: Parts,
    /// Attention, and the home of its KV cache: one part.
    pub attention: Parts,
    /// Parts of the output projection.
    pub out: Parts,
    /// Parts of the (gate and) up projection; in dense layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn_up: Option<Parts>,
    /// Parts of the down projection; in dense layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn_down: Option<Parts>,
    /// The router: one part; in layers with experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Parts>,
    /// Parts of the expert that every token goes to; in layers that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_expert: Option<Parts>,
    /// Parts of the experts, the most popular ones first: a share of 0.25 is the most popular quarter of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Parts>,
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
    /// Which share of the objective of the chosen placement, simulated, the solver proved that no placement goes below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven: Option<Ratio>,
    /// The chosen placement, simulated with contention.
    pub simulated: Times,
    /// What the devices draw while they compute, per output token, where the power of each is known.
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
    fn new(path: &[&str], value: impl ToString, wanted: impl Into<String>) -> Self {
        let path = path.iter().map(|&step| step.to_owned()).collect();
        Self { path, value: value.to_string(), wanted: wanted.into() }
    }

    fn under(mut self, outer: [String; 2]) -> Self {
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
        plan.check_fit(machine, model, &placement).map_err(refuse)?;
        Ok((plan, placement))
    }

    /// Reads the document alone, without asking what it is for.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        yaml::read(text, file)
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
        Extent { batch: self.workload.batch, context: self.workload.context(), chunk: self.prefill_chunk }
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
        let mut layers = Vec::new();
        for (index, group) in self.layers.iter().enumerate() {
            let place = |error: PlanError| error.under(["layers".to_owned(), index.to_string()]);
            let layer = group.layer(machine, model, layers.len() as u64).map_err(place)?;
            layers.extend(std::iter::repeat_n(layer, group.count as usize));
        }
        if layers.len() as u64 != model.layers {
            let wanted = format!("the model has {}", model.layers);
            return Err(PlanError::new(&["layers"], format!("for {} layers", layers.len()), wanted));
        }
        Ok(Placement {
            embed: self.embed.slices(machine, model, Sublayer::Embed)?,
            layers,
            head: self.head.slices(machine, model, Sublayer::Head)?,
        })
    }

    /// The document for `placement`, in which equal neighbours become one group.
    ///
    /// # Errors
    /// Where bytes must move without a link, or more is needed of a memory than it holds.
    pub(crate) fn of(
        question: &Question<'_>,
        prefill_chunk: u64,
        placement: &Placement,
        predicted: Prediction,
    ) -> Result<Self, PlannerError> {
        let Question { pricing, workload, objective, slo, costs } = *question;
        let Pricing { machine, model, formats } = pricing;
        let (embed, layers, head) = named(machine, model, placement);
        let extent = Extent { batch: workload.batch, context: workload.context(), chunk: prefill_chunk };
        let used = footprint(pricing, &extent, placement)?;
        let names = machine.memories.iter().map(|memory| memory.name.clone());
        let plan = Self {
            plan: PLAN_VERSION,
            from: None,
            machine: Identity { name: machine.name.clone(), fingerprint: machine.fingerprint() },
            model: Identity { name: model.name.clone(), fingerprint: model.fingerprint() },
            formats: *formats,
            workload,
            objective,
            slo,
            costs,
            prefill_chunk,
            embed,
            layers,
            head,
            memory: names.zip(used.iter().copied()).collect(),
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

    fn check_fit(&self, machine: &Machine, model: &Model, placement: &Placement) -> Result<(), PlanError> {
        let impossible = |error: PlannerError| PlanError::new(&["layers"], "impossible", error.to_string());
        let pricing = Pricing { machine, model, formats: &self.formats };
        let used = footprint(pricing, &self.extent(), placement).map_err(|e| impossible(e.into()))?;
        match overfilled(machine, &used) {
            None => Ok(()),
            Some((memory, needed)) => {
                let wanted = format!("it holds {}", memory.capacity.value);
                Err(PlanError::new(&["memory", &memory.name], format!("filled with {needed}"), wanted))
            }
        }
    }
}

impl LayerGroup {
    fn of(machine: &Machine, model: &Model, first: u64, layer: &LayerPlacement) -> Self {
        let of = |sublayer| Parts::of(machine, model, sublayer, layer.slices(sublayer));
        let has = |sublayer| layer.kind.sublayers().contains(&sublayer).then(|| of(sublayer));
        Self {
            first,
            count: 1,
            qkv: of(Sublayer::Qkv),
            attention: of(Sublayer::Attention),
            out: of(Sublayer::Out),
            ffn_up: has(Sublayer::FfnUp),
            ffn_down: has(Sublayer::FfnDown),
            router: has(Sublayer::Router),
            shared_expert: has(Sublayer::SharedExpert),
            experts: has(Sublayer::Experts),
        }
    }

    /// Its sublayers' parts, in the order of computation.
    pub fn parts(&self) -> impl Iterator<Item = (Sublayer, &Parts)> {
        let all = [
            (Sublayer::Qkv, Some(&self.qkv)),
            (Sublayer::Attention, Some(&self.attention)),
            (Sublayer::Out, Some(&self.out)),
            (Sublayer::FfnUp, self.ffn_up.as_ref()),
            (Sublayer::FfnDown, self.ffn_down.as_ref()),
            (Sublayer::Router, self.router.as_ref()),
            (Sublayer::SharedExpert, self.shared_expert.as_ref()),
            (Sublayer::Experts, self.experts.as_ref()),
        ];
        all.into_iter().filter_map(|(sublayer, parts)| Some((sublayer, parts?)))
    }

    /// The placement of each of its layers, `before` of which are placed already.
    fn layer(&self, machine: &Machine, model: &Model, before: u64) -> Result<LayerPlacement, PlanError> {
        if self.first != before {
            let wanted = format!("layer {before} is the next: groups follow each other without gaps");
            return Err(PlanError::new(&["first"], self.first, wanted));
        }
        if self.count == 0 || self.count > model.layers - before.min(model.layers) {
            let wanted = format!("from 1 to the {} layers that are left", model.layers - before);
            return Err(PlanError::new(&["count"], self.count, wanted));
        }
        let kind = model.kind(before);
        if model.kind(before + self.count - 1) != kind {
            let wanted = "its layers are not all made of the same sublayers: write a group for each kind";
            return Err(PlanError::new(&["count"], self.count, wanted));
        }
        let has: Vec<_> = self.parts().map(|(sublayer, _)| sublayer).collect();
        if has != kind.sublayers() {
            let words =
                |sublayers: &[Sublayer]| sublayers.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ");
            let wanted = format!("layer {before} of {} has {}", model.name, words(kind.sublayers()));
            return Err(PlanError::new(&[], format!("a layer of {}", words(&has)), wanted));
        }
        let sublayers = self.parts().map(|(sublayer, parts)| parts.slices(machine, model, sublayer));
        Ok(LayerPlacement { kind, sublayers: sublayers.collect::<Result<_, _>>()? })
    }
}

/// The parts of embed, layers and head with names.
fn named(machine: &Machine, model: &Model, placement: &Placement) -> (Parts, Vec<LayerGroup>, Parts) {
    let mut groups: Vec<LayerGroup> = Vec::new();
    let mut previous: Option<&LayerPlacement> = None;
    for (index, layer) in placement.layers.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if previous == Some(layer) => group.count += 1,
            _ => groups.push(LayerGroup::of(machine, model, index as u64, layer)),
        }
        previous = Some(layer);
    }
    let embed = Parts::of(machine, model, Sublayer::Embed, &placement.embed);
    (embed, groups, Parts::of(machine, model, Sublayer::Head, &placement.head))
}

/// The first memory that is used beyond its capacity, and how much it would have to hold.
pub(crate) fn overfilled<'m>(machine: &'m Machine, used: &[Usage]) -> Option<(&'m Memory, Bytes)> {
    let totals = machine.memories.iter().zip(used.iter().map(Usage::total));
    totals.into_iter().find(|(memory, total)| *total > memory.capacity.value)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn check_identity(key: &str, ours: &Identity, name: &str, fingerprint: &str) -> Result<(), PlanError> {
    if ours.fingerprint == fingerprint {
        return Ok(());
    }
    let value = format!("'{}' ({})", ours.name, ours.fingerprint);
    let wanted = format!("this {key} is '{name}' ({fingerprint}); make a plan for it with `fulcrum plan`");
    Err(PlanError::new(&[key], value, wanted))
}
