//! A scenario with its machine and its model looked up.

use crate::input::error::ScenarioError;
use crate::input::section::shown;
use crate::load::serving::Serving;
use crate::load::speculation::{MTP_MODULE, Speculation, SpeculationChoice};
use crate::load::training::Training;
use crate::load::workload::{Misfit, Workload};
use crate::load::workload_kind::WorkloadKind;
use crate::model::formats::file_type::GgufFileType;
use crate::model::operators::formats::{Formats, WeightClass, WeightFormats};
use crate::model::transformer::Model;
use crate::question::engine_choice::EngineChoice;
use crate::question::format_choice::FormatChoice;
use crate::question::lookup::{Catalog, MachineSpec, Reference};
use crate::question::placement_choice::{OffloadOptions, PlacementChoice};
use crate::question::requirements::Requirements;
use crate::question::scenario::Scenario;
use hwprofiles::{EngineExecution, Machine, ProfileError};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A scenario with its machine and its model looked up: everything that a plan depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedScenario {
    /// The machine as the engine runs it, once for each way in which its GPUs may be grouped; at
    /// least one.
    pub machines: Arc<[Machine]>,
    /// The model.
    pub model: Model,
    /// The number formats that may be chosen. Where the scenario names none, weights are in the
    /// model's own format, and the KV cache and activations are in the engine's.
    pub formats: FormatChoice,
    /// The draft model of speculative decoding, and how many tokens it may propose.
    pub speculative: Option<SpeculationChoice<Model>>,
    /// Workload, objective, limits and costs. The workload is a static batch that fits the model:
    /// the scenario's own, or one that resembles what the engine will run.
    pub requirements: Requirements,
    /// The serving workload, if it is one.
    pub serving: Option<Serving>,
    /// The training step, if it is one.
    pub training: Option<Training>,
    /// The engine that runs the workload.
    pub engine: EngineChoice,
    /// The placement that is forced instead of planned.
    pub placement: Option<PlacementChoice>,
}

impl ResolvedScenario {
    /// A text that differs if two scenarios ask for something else of the same machines and the
    /// same model: a part of a cache key, to which the caller adds the fingerprints of machines and
    /// model.
    pub fn identity(&self) -> String {
        #[derive(Serialize)]
        struct Identity<'a> {
            formats: &'a FormatChoice,
            speculative: &'a Option<SpeculationChoice<Model>>,
            requirements: &'a Requirements,
            serving: &'a Option<Serving>,
            training: &'a Option<Training>,
            engine: &'a EngineChoice,
            #[serde(skip_serializing_if = "Option::is_none")]
            placement: &'a Option<PlacementChoice>,
        }
        let Self {
            machines: _,
            model: _,
            formats,
            speculative,
            requirements,
            serving,
            training,
            engine,
            placement,
        } = self;
        let identity = Identity { formats, speculative, requirements, serving, training, engine, placement };
        serde_json::to_string(&identity).expect("all fields are numbers, texts and lists of them")
    }
}

impl Scenario {
    /// Looks the model and the machine up in `catalog`, and checks that the workload fits the
    /// model.
    ///
    /// # Errors
    /// The model or the machine cannot be found, or its file is wrong; the workload exceeds the
    /// model's positions or is too large to count; no number format keeps the allowed loss of
    /// quality.
    pub fn resolve(&self, catalog: &dyn Catalog) -> Result<ResolvedScenario, ScenarioError> {
        let model = self.find_model("model", &self.model, catalog)?;
        if self.expert_skew > 0.0 && model.experts.is_none() {
            let wanted = format!("{} has no experts: leave it out", model.name);
            return Err(self.wrong("expert_skew", self.expert_skew.to_string(), wanted));
        }
        let model = model.with_expert_skew(self.expert_skew);
        let workload = self.workload.representative_batch(&model)?;
        if let Some(Misfit { key, value, wanted }) = self.workload.misfit(&model, &workload) {
            return Err(self.wrong(&format!("workload.{key}"), value.to_string(), wanted));
        }
        let speculative = self.find_draft(&model, &workload, catalog)?;
        let formats = self.format_choice(&model)?;
        let machines = catalog.machines(&self.machine, &self.groups).map_err(|error| self.misnamed(error))?;
        let mut engine = self.engine.clone();
        if let Some(machine) = machines.first() {
            engine.profile.serving.adapt_to(machine);
        }
        let is_whole = |options: &OffloadOptions| options.is_whole_on_gpus(&model);
        if matches!(&self.placement, Some(PlacementChoice::Offload(options)) if is_whole(options)) {
            engine.profile.execution = engine.profile.execution.with_all_on_gpus();
        }
        let execution = &engine.profile.execution;
        let machines = match *execution == EngineExecution::default() {
            true => machines,
            false => machines.iter().map(|machine| machine.run_by(execution)).collect(),
        };
        Ok(ResolvedScenario {
            machines,
            model,
            formats,
            speculative,
            requirements: Requirements {
                workload,
                objective: self.objective,
                slo: self.slo,
                costs: self.costs,
            },
            serving: self.workload.serving().cloned(),
            training: self.workload.training(),
            engine,
            placement: self.placement.clone(),
        })
    }

    /// The model that is named under `key`.
    fn find_model(
        &self,
        key: &str,
        reference: &Reference,
        catalog: &dyn Catalog,
    ) -> Result<Model, ScenarioError> {
        catalog.model(reference).map_err(|error| match error {
            ScenarioError::UnknownPreset { name, known } => self.wrong(
                key,
                Value::String(name).to_string(),
                format!(
                    "a preset, a folder with a config.json, a config.json or a GGUF file is wanted; {known}"
                ),
            ),
            other => other,
        })
    }

    /// The error for the value `value` of the key at `path`.
    pub fn refuse(&self, path: &[String], value: String, wanted: String) -> ScenarioError {
        self.wrong(&path.join("."), value, wanted)
    }

    /// The error at its place, where the machine's name, the words for it, its parts or the groups
    /// of its GPUs are wrong. Errors within the machine's file tell their own place.
    fn misnamed(&self, error: ScenarioError) -> ScenarioError {
        const GROUPS: &str = "tensor_parallel";
        let ScenarioError::Machine(cause) = &error else { return error };
        if matches!(cause, ProfileError::Unfit { part, .. } if part == GROUPS) {
            return ScenarioError::Syntax { place: self.source.place(GROUPS), reason: cause.to_string() };
        }
        match &self.machine {
            MachineSpec::Named(reference) => {
                let wanted = match cause {
                    ProfileError::Unknown { name, known } if *name == reference.text => {
                        format!("neither a file nor a shipped profile; {known}")
                    }
                    ProfileError::WrongKind { name, found, wanted } if *name == reference.text => {
                        format!("this is {found}, but {wanted} is wanted here")
                    }
                    ProfileError::Unclear { .. } | ProfileError::Unfit { .. } => cause.to_string(),
                    _ => return error,
                };
                self.wrong("machine", Value::String(reference.text.clone()).to_string(), wanted)
            }
            MachineSpec::Parts { composition, .. } => {
                let Some((key, wanted)) = composition.parts.wrong_key(cause) else { return error };
                let written = serde_json::to_value(&composition.parts).unwrap_or_default();
                let value = written.pointer(&format!("/{}", key.replace('.', "/")));
                let value = value.map_or_else(|| "absent".to_owned(), shown);
                self.wrong(&format!("machine.{key}"), value, wanted)
            }
        }
    }

    /// The error for a wrong value.
    fn wrong(&self, key: &str, value: String, wanted: String) -> ScenarioError {
        ScenarioError::Value { place: self.source.place(key), key: self.source.name(key), value, wanted }
    }

    /// The draft model. It must have the model's vocabulary and as many positions as it proposes
    /// for.
    fn find_draft(
        &self,
        model: &Model,
        workload: &Workload,
        catalog: &dyn Catalog,
    ) -> Result<Option<SpeculationChoice<Model>>, ScenarioError> {
        let Some(SpeculationChoice { draft, choices }) = &self.speculative else { return Ok(None) };
        let draft = match draft.text.as_str() {
            MTP_MODULE => model.mtp_module().ok_or_else(|| self.no_module(model))?,
            _ => self.find_model("speculative.draft", draft, catalog)?,
        };
        let refuse = |wanted: &str| Some(Misfit::new("draft", &*draft.name, wanted.to_owned()));
        let misfit = match &self.workload {
            WorkloadKind::Training(_) => refuse("nothing is proposed in training: leave it out"),
            WorkloadKind::Serving(_) => {
                refuse("a serving workload has no draft model: leave it out, or write a batch")
            }
            WorkloadKind::Batch(_) => draft_misfit(&draft, choices, model, workload),
        };
        if let Some(Misfit { key, value, wanted }) = misfit {
            return Err(self.wrong(&format!("speculative.{key}"), value.to_string(), wanted));
        }
        Ok(Some(SpeculationChoice { draft, choices: choices.clone() }))
    }

    /// The error for the MTP module of a model that has none.
    fn no_module(&self, model: &Model) -> ScenarioError {
        let alike = Model::preset_names().filter_map(|name| Model::preset(name).ok());
        let alike = alike.filter(|preset| {
            let same = preset.vocab == model.vocab && preset.architecture == model.architecture;
            same && preset.parameters() < model.parameters()
        });
        let nearest = alike.min_by_key(|preset| preset.parameters().get());
        let nearest = nearest.map_or("a smaller model of its vocabulary".to_owned(), |preset| preset.name);
        let wanted = format!("{} has no MTP module: name a draft model, for example {nearest}", model.name);
        self.wrong("speculative.draft", format!("{MTP_MODULE:?}"), wanted)
    }

    /// The formats of the only GGUF file of a model, where the engine reads such files.
    fn only_file(&self, model: &Model) -> Option<WeightFormats> {
        let repository = Model::gguf_repository(&model.name).filter(|_| self.engine.profile.reads_gguf())?;
        GgufFileType::find(repository.only?)?.formats(model).ok()
    }

    /// The formats that may be chosen for `model`; at least one must remain.
    fn format_choice(&self, model: &Model) -> Result<FormatChoice, ScenarioError> {
        let published = model.published.as_deref().map(|published| (*published).into());
        let weights = self.only_file(model).or(published).unwrap_or(model.dtype.into());
        let serving = &self.engine.profile.serving;
        let default = Formats { weights, kv: serving.kv, activations: serving.activations };
        if model.experts.is_none()
            && let Some(named) = self.dtype.weights.classes.get(&WeightClass::Experts)
        {
            let names: Vec<_> = named.iter().map(ToString::to_string).collect();
            let wanted = format!("{} has no experts: leave it out", model.name);
            return Err(self.wrong("dtype.weights.experts", names.join(", "), wanted));
        }
        let combinations = self.dtype.combinations(&default, model);
        let combinations =
            combinations.map_err(|why| self.wrong("dtype.weights", model.name.clone(), why))?;
        let choice = FormatChoice::within(self.quality, combinations, model);
        match (choice.allowed.is_empty(), self.quality) {
            (true, Some(limit)) => {
                let why: Vec<_> =
                    choice.lossy.iter().map(|(formats, why)| format!("{formats} ({why})")).collect();
                let wanted = format!("none of dtype keeps it, allow more or name others: {}", why.join("; "));
                Err(self.wrong("quality.max_loss", limit.to_string(), wanted))
            }
            _ => Ok(choice),
        }
    }
}

/// The first key under `speculative` for which `draft` cannot propose tokens for `model`: both must
/// have the same vocabulary, and enough positions for the tokens that are proposed.
fn draft_misfit(
    draft: &Model,
    choices: &[Speculation],
    model: &Model,
    workload: &Workload,
) -> Option<Misfit> {
    if draft.vocab != model.vocab {
        let wanted = format!(
            "its vocabulary has {} tokens, that of {} has {}: a model of the same family is wanted",
            draft.vocab, model.name, model.vocab
        );
        return Some(Misfit::new("draft", &*draft.name, wanted));
    }
    choices.iter().find_map(|&speculation| {
        let speculated = Workload { speculation: Some(speculation), ..*workload };
        let misfit = [model, draft].into_iter().find_map(|model| speculated.misfit(model))?;
        Some(Misfit::new("tokens", speculation.tokens, misfit.wanted))
    })
}
