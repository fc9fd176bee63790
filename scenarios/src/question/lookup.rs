//! How a scenario names its machine and its model, and how these names are looked up.

use crate::input::error::ScenarioError;
use crate::model::transformer::Model;
use crate::question::group_choice::GroupChoice;
use hwprofiles::{Composition, Library, LoopbackLimit, Machine, PartNames, ProfileError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A name or a path, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Reference {
    /// The text.
    pub text: String,
    /// Where a relative path starts: the scenario's folder; empty for a setting of the command
    /// line.
    pub folder: PathBuf,
}

impl Reference {
    /// The text as a path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.text)
    }

    /// Reads the preset of that name, or the model at that path: a folder with a `config.json`, a
    /// `config.json` itself, a safetensors file or its index beside one, or a GGUF file. A file or
    /// folder comes before a preset whose name is only similar ([`Model::preset`]).
    ///
    /// # Errors
    /// There is no such preset or path, or its file is wrong.
    pub fn load(&self) -> Result<Model, ScenarioError> {
        let path = self.path();
        let ends = |end: &str| path.is_file() && self.text.ends_with(end);
        if Model::is_preset_name(&self.text) {
            Model::preset(&self.text)
        } else if path.is_dir() {
            Model::from_folder(&path)
        } else if ends(".gguf") {
            Model::from_gguf_file(&path)
        } else if ends(".safetensors") || ends(".safetensors.index.json") {
            let config = path.with_file_name("config.json");
            Model::from_config_file(&folder_name(&config), &config)
        } else if path.is_file() {
            Model::from_config_file(&folder_name(&path), &path)
        } else {
            Model::preset(&self.text)
        }
    }

    /// A text that means the same in every folder: the preset's name, otherwise the absolute path.
    pub fn anchored(&self) -> String {
        match Model::preset_name(&self.text) {
            Some(name) if name == self.text || !self.path().exists() => name.to_owned(),
            _ => anchored(&self.folder, &self.text),
        }
    }
}

/// The name of the folder that contains a `config.json`.
fn folder_name(path: &Path) -> String {
    let folder = path.parent().and_then(Path::file_name).or(path.file_stem());
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// A machine's name as it is, or a path as an absolute path. Names take precedence over files, as
/// they do in [`Library`].
fn anchored(folder: &Path, text: &str) -> String {
    if text == "this" || hwprofiles::shipped().any(|(name, _)| name == text) {
        return text.to_owned();
    }
    folder.join(text).canonicalize().map_or_else(|_| text.to_owned(), |path| path.display().to_string())
}

/// Which machine a scenario asks about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum MachineSpec {
    /// `this`, the name of a shipped machine, or a file.
    Named(Reference),
    /// Parts written inline.
    Parts {
        /// The parts' names and the loopback device's limits.
        composition: Box<Composition>,
        /// Where relative paths among the names start.
        folder: PathBuf,
    },
}

impl MachineSpec {
    /// Looks the machine up. `this` is the file that the name `this` stands for, which `fulcrum
    /// bench` writes. If the name is that of a GPU, the machine is a server with `gpus` of them.
    ///
    /// # Errors
    /// There is no such machine or part, its file is wrong, or the parts do not make a machine.
    pub fn machine(&self, this: Option<PathBuf>, gpus: u64) -> Result<Machine, ProfileError> {
        match self {
            MachineSpec::Named(name) => {
                Library { this, folder: name.folder.clone() }.machine_called(&name.text, gpus)
            }
            MachineSpec::Parts { composition, folder } => {
                Library { this, folder: folder.clone() }.compose(composition)
            }
        }
    }

    /// Looks the machine up once for each of the `groups`. If `groups` names no degree of tensor
    /// parallelism, every one that divides the GPUs is used.
    ///
    /// # Errors
    /// The errors of [`MachineSpec::machine`]; a group's GPUs do not divide the machine's.
    pub fn grouped(
        &self,
        this: Option<PathBuf>,
        groups: &GroupChoice,
    ) -> Result<Arc<[Machine]>, ProfileError> {
        let machine = self.machine(this, groups.most_gpus())?;
        let all = groups.divisions(&machine.tensor_parallel_degrees());
        all.into_iter().map(|division| machine.with_division(division)).collect()
    }

    /// The form in which a plan records the machine.
    pub fn source(&self) -> MachineSource {
        match self {
            MachineSpec::Named(name) => MachineSource::Named(anchored(&name.folder, &name.text)),
            MachineSpec::Parts { composition, folder } => {
                let mut parts = composition.parts.clone();
                for part in parts.names_mut() {
                    *part = anchored(folder, part);
                }
                MachineSource::Parts(Box::new(parts))
            }
        }
    }
}

/// A machine as a plan records it, independent of the current folder: each name is `this`, a
/// shipped name or an absolute path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MachineSource {
    /// One name or path.
    Named(String),
    /// The names of parts.
    Parts(Box<PartNames>),
}

impl MachineSource {
    /// The host described in the file `host`, with a loopback device.
    pub fn from_loopback(host: &Path, limit: LoopbackLimit) -> Self {
        let cpu = anchored(Path::new(""), &host.display().to_string());
        let parts = PartNames { cpu, loopback: Some(limit), ..PartNames::default() };
        MachineSource::Parts(Box::new(parts))
    }
}

impl From<MachineSource> for MachineSpec {
    fn from(source: MachineSource) -> Self {
        match source {
            MachineSource::Named(text) => MachineSpec::Named(Reference { text, folder: PathBuf::new() }),
            MachineSource::Parts(parts) => MachineSpec::Parts {
                composition: Box::new(Composition { parts: *parts, ..Composition::default() }),
                folder: PathBuf::new(),
            },
        }
    }
}

/// Where the names in scenarios are looked up. An implementation may keep what it finds, so that a
/// sweep reads each file once.
pub trait Catalog {
    /// The model that `reference` names.
    ///
    /// # Errors
    /// There is no such model, or its file is wrong.
    fn model(&self, reference: &Reference) -> Result<Model, ScenarioError> {
        reference.load()
    }

    /// The machine that `spec` names, with its GPUs in each of the `groups` (see
    /// [`MachineSpec::grouped`]).
    ///
    /// # Errors
    /// There is no such machine or part, its file is wrong, or a group does not divide its GPUs.
    fn machines(&self, spec: &MachineSpec, groups: &GroupChoice) -> Result<Arc<[Machine]>, ScenarioError>;
}

/// Reads every file anew at each lookup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCatalog {
    /// The file that the machine `this` stands for.
    pub this: Option<PathBuf>,
}

impl Catalog for FileCatalog {
    fn machines(&self, spec: &MachineSpec, groups: &GroupChoice) -> Result<Arc<[Machine]>, ScenarioError> {
        spec.grouped(self.this.clone(), groups).map_err(ScenarioError::Machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_absolute_paths_and_names_stay_names() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("host.yaml"), "").expect("written");
        let parts = PartNames {
            cpu: "host.yaml".into(),
            gpus: vec![hwprofiles::GpuChoice::one("t4")],
            link: Some("pcie3-x16".into()),
            ..PartNames::default()
        };
        let composition = Box::new(Composition { parts, ..Composition::default() });
        let spec = MachineSpec::Parts { composition, folder: folder.path().to_owned() };
        let MachineSource::Parts(found) = spec.source() else { panic!("parts stay parts") };
        assert!(Path::new(&found.cpu).is_absolute() && Path::new(&found.cpu).is_file());
        assert_eq!(found.gpus[0].part, "t4");
        let again = MachineSpec::from(MachineSource::Parts(found.clone())).source();
        assert_eq!(again, MachineSource::Parts(found));
    }
}
