//! A question: this model, this workload, this objective, on that machine.

use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::input::section::{Origin, Section};
use crate::input::setting::Setting;
use crate::load::serving::{Serving, read_serving};
use crate::load::speculation::{Speculation, misfit, read_speculative};
use crate::load::training::{Training, read_training};
use crate::load::workload::{Workload, read_workload};
use crate::model::operators::formats::WeightClass;
use crate::model::operators::operator::Formats;
use crate::model::transformer::Model;
use crate::question::costs::{Costs, read_costs};
use crate::question::engine_choice::{EngineChoice, EngineName, read_engine};
use crate::question::format_choice::{FormatChoice, FormatLists, read_formats};
use crate::question::lookup::LoadModel;
use crate::question::objective::{Objective, Slo, read_objective, read_slo};
use crate::question::quality::{Loss, read_quality};
use hwprofiles::{Composition, DType, Library, Machine, ProfileError};
use serde_json::Value;
use std::path::PathBuf;

/// A name or a path, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The text.
    pub text: String,
    /// Where a relative path starts: the scenario's folder, or nowhere for a setting of the command line.
    pub folder: PathBuf,
}

impl Reference {
    /// The text as a path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.text)
    }
}

/// Which machine.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineSpec {
    /// `this`, a shipped machine's name, or a file.
    Named(Reference),
    /// Parts written inline.
    Parts {
        /// Their names, and the loopback's limits; [`hwprofiles::Library::compose`] makes a machine of it.
        composition: Box<Composition>,
        /// Where the relative paths among them start.
        folder: PathBuf,
    },
}

impl MachineSpec {
    /// The machine itself. `this` is the file that `this` stands for: what `fulcrum bench` wrote last. A GPU's name stands for
    /// `gpus` of them in one server.
    ///
    /// # Errors
    /// There is no such machine or part, its file is wrong, or the parts do not make a machine.
    pub fn machine(&self, this: Option<PathBuf>, gpus: u64) -> Result<Machine, ProfileError> {
        match self {
            MachineSpec::Named(name) => {
                Library { this, folder: name.folder.clone() }.machine_with(&name.text, gpus)
            }
            MachineSpec::Parts { composition, folder } => {
                Library { this, folder: folder.clone() }.compose(composition)
            }
        }
    }
}

/// A scenario, every key understood, nothing looked up yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The machine.
    pub machine: MachineSpec,
    /// A preset, a folder with a `config.json`, or the path of one.
    pub model: Reference,
    /// Exponent of Zipf's law by which tokens choose experts; 0 is uniform.
    pub expert_skew: f64,
    /// The formats that may be chosen.
    pub dtype: FormatLists,
    /// The degrees of tensor parallelism that may be chosen; none where nothing is said.
    pub tensor_parallel: Vec<u64>,
    /// The draft of speculative decoding, and how many tokens it may propose.
    pub speculative: Option<(Reference, Vec<Speculation>)>,
    /// What may be lost with them at most.
    pub quality: Option<Loss>,
    /// A static batch; absent where requests come and go.
    pub workload: Option<Workload>,
    /// Requests that come and go.
    pub serving: Option<Serving>,
    /// A training step.
    pub training: Option<Training>,
    /// The engine that serves them.
    pub engine: EngineChoice,
    /// The objective.
    pub objective: Objective,
    /// The limits.
    pub slo: Option<Slo>,
    /// What the machine and its electricity cost.
    pub costs: Option<Costs>,
    origin: Origin,
}

/// A scenario with its model and the formats of its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedScenario {
    /// The machine, still to be found.
    pub machine: MachineSpec,
    /// The model.
    pub model: Model,
    /// Weights as the model has them, KV in bf16 and activations in f32 (bf16 in an engine other than Fulcrum's) where the
    /// scenario does not say.
    pub formats: FormatChoice,
    /// The degrees of tensor parallelism that may be chosen; none where the scenario does not say.
    pub tensor_parallel: Vec<u64>,
    /// The draft of speculative decoding, and how many tokens it may propose.
    pub speculative: Option<(Model, Vec<Speculation>)>,
    /// A static batch that fits the model: the workload, or one like those that the engine will run.
    pub workload: Workload,
    /// Requests that come and go.
    pub serving: Option<Serving>,
    /// A training step.
    pub training: Option<Training>,
    /// The engine that serves them.
    pub engine: EngineChoice,
    /// The objective.
    pub objective: Objective,
    /// The limits.
    pub slo: Option<Slo>,
    /// What the machine and its electricity cost.
    pub costs: Option<Costs>,
}

const KEYS: [&str; 16] = [
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
    "speculative",
    "capacity",
    "sweep",
];

impl Document {
    /// The scenario with `settings` applied in order, each of which must have one value.
    ///
    /// # Errors
    /// Those of [`Document::scenario`]; a setting without a place in the document, or with several values.
    pub fn scenario_with(&self, settings: &[Setting]) -> Result<Scenario, ScenarioError> {
        self.with(settings)?.scenario()
    }

    /// The scenario.
    ///
    /// # Errors
    /// An unknown key, a missing one, a value of the wrong type or beyond its range, or something that this
    /// version cannot do; each says file, line, key, value and what would be right.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let root = Section::root(&self.origin, &self.root)?;
        root.only(&KEYS)?;
        let workload = root.section("workload")?.ok_or_else(|| {
            root.missing("workload", "{batch: …, prompt_tokens: …, output_tokens: …} is wanted")
        })?;
        let training = read_training(&root)?;
        let serving = read_serving(&root, &workload, &self.start_of("workload.trace"))?;
        let is_batch = serving.is_none() && training.is_none();
        Ok(Scenario {
            machine: self.machine(&root)?,
            model: self.reference(&root, "model", "a preset, a model folder or a config.json")?,
            expert_skew: read_skew(&root)?,
            dtype: read_formats(&root)?,
            tensor_parallel: read_degrees(&root)?,
            speculative: self.speculative(&root)?,
            quality: root.section("quality")?.map(|section| read_quality(&section)).transpose()?,
            workload: if is_batch { Some(read_workload(&workload)?) } else { None },
            serving,
            training,
            engine: read_engine(&root)?,
            objective: read_objective(&root)?,
            slo: root.section("slo")?.map(|section| read_slo(&section)).transpose()?,
            costs: root.section("costs")?.map(|section| read_costs(&section)).transpose()?,
            origin: self.origin.clone(),
        })
    }

    fn machine(&self, root: &Section<'_>) -> Result<MachineSpec, ScenarioError> {
        const WANTED: &str = "a machine's name, its file, or its parts ({cpu: …, …})";
        match root.get("machine") {
            Some(value) if value.is_object() => {
                let parts = serde_path_to_error::deserialize(value).map_err(|error| {
                    let key = match error.path().to_string() {
                        path if path == "." => "machine".to_owned(),
                        path => format!("machine.{path}"),
                    };
                    root.wrong(&key, &error.into_inner().to_string())
                })?;
                let composition = Box::new(Composition { parts, ..Composition::default() });
                Ok(MachineSpec::Parts { composition, folder: self.start_of("machine") })
            }
            Some(value) if !value.is_string() => Err(root.wrong("machine", &format!("{WANTED} is wanted"))),
            _ => self.reference(root, "machine", WANTED).map(MachineSpec::Named),
        }
    }

    fn speculative(
        &self,
        root: &Section<'_>,
    ) -> Result<Option<(Reference, Vec<Speculation>)>, ScenarioError> {
        let Some((section, choices)) = read_speculative(root)? else { return Ok(None) };
        let draft = self.reference(&section, "draft", "a preset, a model folder or a config.json")?;
        Ok(Some((Reference { folder: self.start_of("speculative.draft"), ..draft }, choices)))
    }

    fn reference(&self, root: &Section<'_>, key: &str, wanted: &str) -> Result<Reference, ScenarioError> {
        let wanted = format!("{wanted} is wanted");
        match root.text(key)? {
            None => Err(root.missing(key, &wanted)),
            Some("") => Err(root.wrong(key, &wanted)),
            Some(text) => Ok(Reference { text: text.to_owned(), folder: self.start_of(key) }),
        }
    }

    /// Where relative paths under `key` start: who types a path on the command line means the current folder.
    fn start_of(&self, key: &str) -> PathBuf {
        if self.origin.settings.contains_key(key) { PathBuf::new() } else { self.folder.clone() }
    }
}

impl Scenario {
    /// Looks the model up (presets first, then paths) and checks that the workload fits it.
    ///
    /// # Errors
    /// The model is neither; its `config.json` is wrong; the workload exceeds the model's positions or is too
    /// large to count.
    pub fn resolve(&self) -> Result<ResolvedScenario, ScenarioError> {
        self.resolve_with(&Reference::load)
    }

    /// The same where `load` knows the models.
    ///
    /// # Errors
    /// Likewise.
    pub fn resolve_with(&self, load: &LoadModel<'_>) -> Result<ResolvedScenario, ScenarioError> {
        let model = self.model_at("model", &self.model, load)?;
        if self.expert_skew > 0.0 && model.experts.is_none() {
            return Err(ScenarioError::Value {
                place: self.origin.place("expert_skew"),
                key: "expert_skew".to_owned(),
                value: self.expert_skew.to_string(),
                wanted: format!("{} has no experts: leave it out", model.name),
            });
        }
        let model = model.with_expert_skew(self.expert_skew);
        let workload = match (&self.serving, self.training, self.workload) {
            (Some(serving), ..) => serving.alike(&model)?,
            (None, Some(training), _) => training.alike(),
            (None, None, Some(workload)) => workload,
            (None, None, None) => unreachable!("a workload is read as one of these"),
        };
        let misfit =
            self.training.map_or_else(|| workload.misfit(&model), |training| training.misfit(&model));
        if let Some((key, value, wanted)) = misfit {
            let key = format!("workload.{key}");
            let (place, value) = (self.origin.place(&key), value.to_string());
            return Err(ScenarioError::Value { place, key, value, wanted });
        }
        let speculative = self.draft_of(&model, &workload, load)?;
        let formats = self.formats(&model)?;
        let Self { machine, tensor_parallel, serving, training, engine, objective, slo, costs, .. } =
            self.clone();
        Ok(ResolvedScenario {
            machine,
            model,
            formats,
            tensor_parallel,
            speculative,
            workload,
            serving,
            training,
            engine,
            objective,
            slo,
            costs,
        })
    }

    /// The model that stands under `key`.
    fn model_at(&self, key: &str, model: &Reference, load: &LoadModel<'_>) -> Result<Model, ScenarioError> {
        load(model).map_err(|error| match error {
            ScenarioError::UnknownPreset { name, known } => self.wrong(
                key,
                Value::String(name),
                format!(
                    "a folder with a config.json, the path of a config.json, or one of {known} is wanted"
                ),
            ),
            other => other,
        })
    }

    fn wrong(&self, key: &str, value: Value, wanted: String) -> ScenarioError {
        ScenarioError::Value {
            place: self.origin.place(key),
            key: key.to_owned(),
            value: value.to_string(),
            wanted,
        }
    }

    /// The draft, which must speak the model's tokens and reach as far.
    fn draft_of(
        &self,
        model: &Model,
        workload: &Workload,
        load: &LoadModel<'_>,
    ) -> Result<Option<(Model, Vec<Speculation>)>, ScenarioError> {
        let Some((reference, choices)) = &self.speculative else { return Ok(None) };
        let draft = self.model_at("speculative.draft", reference, load)?;
        let misfit = match (&self.serving, self.training) {
            (None, Some(_)) => Some((
                "draft",
                Value::from(&*draft.name),
                "nothing is proposed in training: leave it out".to_owned(),
            )),
            (Some(_), _) => Some((
                "draft",
                Value::from(&*draft.name),
                "requests that come and go are served without one: leave it out, or write a batch".to_owned(),
            )),
            (None, None) => misfit(&draft, choices, model, workload),
        };
        if let Some((key, value, wanted)) = misfit {
            return Err(self.wrong(&format!("speculative.{key}"), value, wanted));
        }
        Ok(Some((draft, choices.clone())))
    }

    /// What may be chosen for `model`: something must be left.
    fn formats(&self, model: &Model) -> Result<FormatChoice, ScenarioError> {
        // Fulcrum's own executor keeps f32 between operators, the engines that people run keep 16 bits.
        let activations = match self.engine.name {
            EngineName::Fulcrum => DType::F32,
            _ => DType::Bf16,
        };
        let default = Formats { weights: model.dtype.into(), kv: DType::Bf16, activations };
        if model.experts.is_none()
            && let Some(named) = self.dtype.weights.classes.get(&WeightClass::Experts)
        {
            let key = "dtype.weights.experts".to_owned();
            let names: Vec<_> = named.iter().map(|dtype| dtype.name()).collect();
            let wanted = format!("{} has no experts: leave it out", model.name);
            let (place, value) = (self.origin.place(&key), names.join(", "));
            return Err(ScenarioError::Value { place, key, value, wanted });
        }
        let choice = FormatChoice::within(self.quality, self.dtype.combinations(&default), model);
        match (choice.allowed.is_empty(), self.quality) {
            (true, Some(limit)) => {
                let why: Vec<_> =
                    choice.lossy.iter().map(|(formats, why)| format!("{formats} ({why})")).collect();
                Err(ScenarioError::Value {
                    place: self.origin.place("quality.max_loss"),
                    key: "quality.max_loss".to_owned(),
                    value: limit.to_string(),
                    wanted: format!("none of dtype keeps it, allow more or name others: {}", why.join("; ")),
                })
            }
            _ => Ok(choice),
        }
    }
}

/// Beyond 8, the second expert gets less than half a percent of the first one's tokens: nobody measures more.
fn read_skew(root: &Section<'_>) -> Result<f64, ScenarioError> {
    const STEEPEST: f64 = 8.0;
    match root.get("expert_skew").map(|value| value.as_f64()) {
        None => Ok(0.0),
        Some(Some(skew)) if (0.0..=STEEPEST).contains(&skew) => Ok(skew),
        Some(_) => {
            Err(root.wrong("expert_skew", &format!("a number from 0 (uniform) to {STEEPEST} is wanted")))
        }
    }
}

/// One degree, or several to choose from.
fn read_degrees(root: &Section<'_>) -> Result<Vec<u64>, ScenarioError> {
    const MOST: u64 = 1024;
    Ok(root.counts("tensor_parallel", MOST)?.unwrap_or_default())
}
