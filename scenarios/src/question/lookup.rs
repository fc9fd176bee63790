//! Where a plan's machine and model came from, so that whoever reads the plan finds them again.

use crate::input::error::ScenarioError;
use crate::model::transformer::Model;
use crate::question::scenario::{MachineSpec, Reference};
use hwprofiles::{Composition, LoopbackLimit, PartNames};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A machine as a plan records it: `this`, a shipped name or an absolute path; or parts, each likewise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MachineSource {
    /// By name or path.
    Named(String),
    /// Composed.
    Parts(Box<PartNames>),
}

impl MachineSource {
    /// The host of a file, with a loopback device.
    pub fn of_loopback(host: &Path, limit: LoopbackLimit) -> Self {
        let cpu = anchored(Path::new(""), &host.display().to_string());
        let parts = PartNames { cpu, loopback: Some(limit), ..PartNames::default() };
        MachineSource::Parts(Box::new(parts))
    }
}

/// Reads a model.
pub type LoadModel<'l> = dyn Fn(&Reference) -> Result<Model, ScenarioError> + 'l;

impl Reference {
    /// The preset of that name, or the model at that path: a folder with a `config.json`, that file itself, or a GGUF file.
    ///
    /// # Errors
    /// It is neither, or its `config.json` is wrong.
    pub fn load(&self) -> Result<Model, ScenarioError> {
        let path = self.path();
        match Model::preset(&self.text) {
            Ok(preset) => Ok(preset),
            Err(_) if path.is_dir() => Model::from_folder(&path),
            Err(_) if path.extension().is_some_and(|kind| kind == "gguf") => Model::from_gguf_file(&path),
            Err(_) if path.is_file() => Model::from_config_file(&folder_name(&path), &path),
            Err(unknown) => Err(unknown),
        }
    }

    /// What it means, wherever it is read: a preset's name, else the absolute path.
    pub fn anchored(&self) -> String {
        match Model::preset(&self.text) {
            Ok(_) => self.text.clone(),
            Err(_) => anchored(&self.folder, &self.text),
        }
    }
}

/// A config.json is named after the folder that it lies in.
fn folder_name(path: &Path) -> String {
    let folder = path.parent().and_then(Path::file_name).or(path.file_stem());
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Names come before files, as they do where they are looked up.
fn anchored(folder: &Path, text: &str) -> String {
    if text == "this" || hwprofiles::shipped().any(|(name, _)| name == text) {
        return text.to_owned();
    }
    folder.join(text).canonicalize().map_or_else(|_| text.to_owned(), |path| path.display().to_string())
}

impl MachineSpec {
    /// The specification as a plan records it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_from_anywhere_and_names_stay_names() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("host.yaml"), "").expect("written");
        let parts = PartNames {
            cpu: "host.yaml".into(),
            gpu: Some(hwprofiles::GpuChoice::one("t4")),
            link: Some("pcie3-x16".into()),
            ..PartNames::default()
        };
        let composition = Box::new(Composition { parts, ..Composition::default() });
        let spec = MachineSpec::Parts { composition, folder: folder.path().to_owned() };
        let MachineSource::Parts(found) = spec.source() else { panic!("parts stay parts") };
        assert!(Path::new(&found.cpu).is_absolute() && Path::new(&found.cpu).is_file());
        assert_eq!(found.gpu.as_ref().map(|gpu| gpu.part.as_str()), Some("t4"));
        let again = MachineSpec::from(MachineSource::Parts(found.clone())).source();
        assert_eq!(again, MachineSource::Parts(found));
    }
}
