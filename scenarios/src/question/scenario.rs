//! A scenario: what its file says, typed. Nothing is looked up yet.

use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::input::section::{DocumentSection, DocumentSource};
use crate::input::setting::Setting;
use crate::load::serving::read_serving;
use crate::load::speculation::{SpeculationChoice, read_speculative};
use crate::load::training::read_training;
use crate::load::workload::read_workload;
use crate::load::workload_kind::WorkloadKind;
use crate::question::costs::{Costs, read_costs};
use crate::question::engine_choice::{EngineChoice, read_engine};
use crate::question::format_choice::{FormatLists, read_formats};
use crate::question::group_choice::GroupChoice;
use crate::question::keys::SCENARIO_KEYS;
use crate::question::lookup::{MachineSpec, Reference};
use crate::question::objective::{Objective, Slo, read_objective, read_slo};
use crate::question::placement_choice::{PlacementChoice, read_placement};
use crate::question::quality_loss::{QualityLoss, read_quality};
use hwprofiles::{Composition, yaml};
use serde_json::Value;
use std::path::PathBuf;

/// What a scenario's file says, typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The machine.
    pub machine: MachineSpec,
    /// The model: a preset, a folder with a `config.json`, the path of one, or a GGUF file.
    pub model: Reference,
    /// Exponent of Zipf's law by which tokens choose experts; 0 is uniform.
    pub expert_skew: f64,
    /// The number formats that may be chosen.
    pub dtype: FormatLists,
    /// The ways to group GPUs that may be chosen.
    pub groups: GroupChoice,
    /// The draft model of speculative decoding, and how many tokens it may propose.
    pub speculative: Option<SpeculationChoice<Reference>>,
    /// The largest loss of quality that the formats may cause.
    pub quality: Option<QualityLoss>,
    /// The workload.
    pub workload: WorkloadKind,
    /// The engine that runs it.
    pub engine: EngineChoice,
    /// The placement that is forced instead of planned.
    pub placement: Option<PlacementChoice>,
    /// What is minimised or maximised.
    pub objective: Objective,
    /// Limits that a plan must keep.
    pub slo: Slo,
    /// What the machine and its electricity cost.
    pub costs: Costs,
    /// Where the values were written, for messages.
    pub(crate) source: DocumentSource,
}

const KEYS: [&str; 20] = [
    "machine",
    "model",
    "expert_skew",
    "dtype",
    "quality",
    "workload",
    "objective",
    "slo",
    "costs",
    "engine",
    "shifts",
    "rebalance",
    "tensor_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "data_parallel",
    "speculative",
    "placement",
    "capacity",
    "sweep",
];

impl Document {
    /// Reads the scenario with `settings` applied in order. Each setting must have exactly one
    /// value.
    ///
    /// # Errors
    /// The errors of [`Document::with_settings`] and of [`Document::scenario`].
    pub fn scenario_with(&self, settings: &[Setting]) -> Result<Scenario, ScenarioError> {
        self.with_settings(settings)?.scenario()
    }

    /// Reads the scenario.
    ///
    /// # Errors
    /// A key is unknown or missing, a value has the wrong type or is out of range, or this version
    /// does not support it. Each error names file, line, key, value and what would be right.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let root = DocumentSection::root(&self.source, &self.root)?;
        root.only_beside(&KEYS, SCENARIO_KEYS.iter().map(|key| key.path))?;
        let workload = root.section("workload")?.ok_or_else(|| {
            root.missing("workload", "{batch: …, prompt_tokens: …, output_tokens: …} is wanted")
        })?;
        let training = read_training(&root)?;
        let serving = read_serving(&root, &workload, &self.base_folder("workload.trace"))?;
        // Fields are read in the order in which errors should be reported.
        let mut scenario = Scenario {
            machine: self.machine(&root)?,
            model: self.reference(&root, "model", "a preset, a model folder or a config.json")?,
            expert_skew: read_skew(&root)?,
            dtype: read_formats(&root)?,
            groups: GroupChoice::read(&root)?,
            speculative: self.speculative(&root)?,
            quality: root.section("quality")?.map(|section| read_quality(&section)).transpose()?,
            workload: match (serving, training) {
                (Some(serving), _) => WorkloadKind::Serving(serving),
                (None, Some(training)) => WorkloadKind::Training(training),
                (None, None) => WorkloadKind::Batch(read_workload(&workload)?),
            },
            engine: read_engine(&root, &self.base_folder("engine.file"))?,
            placement: read_placement(&root, &self.base_folder("placement.plan"))?,
            objective: read_objective(&root)?,
            slo: root.section("slo")?.map_or_else(|| Ok(Slo::default()), |section| read_slo(&section))?,
            costs: root
                .section("costs")?
                .map_or_else(|| Ok(Costs::default()), |section| read_costs(&section))?,
            source: self.source.clone(),
        };
        if !scenario.engine.profile.tensor_parallel && scenario.groups.tensor.is_empty() {
            scenario.groups.tensor = vec![1];
        }
        Ok(scenario)
    }

    fn machine(&self, root: &DocumentSection<'_>) -> Result<MachineSpec, ScenarioError> {
        const WANTED: &str = "a machine's name, its file, or its parts ({cpu: …, …})";
        match root.get("machine") {
            Some(value) if value.is_object() => {
                let parts = yaml::read_value(value, &self.source.file).map_err(|error| {
                    let key = match error.key.as_str() {
                        "" => "machine".to_owned(),
                        path => format!("machine.{path}"),
                    };
                    root.wrong(&key, &error.message)
                })?;
                let composition = Box::new(Composition { parts, ..Composition::default() });
                Ok(MachineSpec::Parts { composition, folder: self.base_folder("machine") })
            }
            // "4090" without quotes.
            Some(Value::Number(number)) => {
                let folder = self.base_folder("machine");
                Ok(MachineSpec::Named(Reference { text: number.to_string(), folder }))
            }
            Some(value) if !value.is_string() => Err(root.wrong("machine", &format!("{WANTED} is wanted"))),
            _ => self.reference(root, "machine", WANTED).map(MachineSpec::Named),
        }
    }

    fn speculative(
        &self,
        root: &DocumentSection<'_>,
    ) -> Result<Option<SpeculationChoice<Reference>>, ScenarioError> {
        let Some((section, choices)) = read_speculative(root)? else { return Ok(None) };
        let draft = self.reference(&section, "draft", "a preset, a model folder, a config.json or mtp")?;
        let draft = Reference { folder: self.base_folder("speculative.draft"), ..draft };
        Ok(Some(SpeculationChoice { draft, choices }))
    }

    fn reference(
        &self,
        root: &DocumentSection<'_>,
        key: &str,
        wanted: &str,
    ) -> Result<Reference, ScenarioError> {
        let wanted = format!("{wanted} is wanted");
        match root.text(key)? {
            None => Err(root.missing(key, &wanted)),
            Some("") => Err(root.wrong(key, &wanted)),
            Some(text) => Ok(Reference { text: text.to_owned(), folder: self.base_folder(key) }),
        }
    }

    /// Where relative paths under `key` start: at the document's folder, or at the current folder
    /// if the path was typed on the command line.
    fn base_folder(&self, key: &str) -> PathBuf {
        if self.source.settings.contains_key(key) { PathBuf::new() } else { self.folder.clone() }
    }
}

/// Reads `expert_skew`. With a skew of 8 the second expert gets less than half a percent of the
/// first one's tokens; larger skews are typing errors.
fn read_skew(root: &DocumentSection<'_>) -> Result<f64, ScenarioError> {
    const MAX_SKEW: f64 = 8.0;
    match root.get("expert_skew").map(|value| value.as_f64()) {
        None => Ok(0.0),
        Some(Some(skew)) if (0.0..=MAX_SKEW).contains(&skew) => Ok(skew),
        Some(_) => {
            Err(root.wrong("expert_skew", &format!("a number from 0 (uniform) to {MAX_SKEW} is wanted")))
        }
    }
}
