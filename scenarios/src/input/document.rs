//! A scenario as it was written: YAML, with the settings of the command line applied on top.

use crate::input::error::ScenarioError;
use crate::input::section::{Origin, Section, shown};
use crate::input::setting::Setting;
use crate::sweep::axis::written;
use hwprofiles::yaml;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A scenario before anything in it is understood, so that settings are read as strictly as the file is.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub(crate) root: Value,
    pub(crate) origin: Origin,
    /// Relative paths of the file start here.
    pub(crate) folder: PathBuf,
}

impl Document {
    /// Reads a scenario's text. `file` is its path in messages; relative paths in the text start at its folder.
    ///
    /// # Errors
    /// The text is not YAML, or no mapping.
    pub fn from_yaml(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let root: Value = yaml::read(text, file).map_err(|error| ScenarioError::Syntax {
            place: format!("{file}:{}:{}", error.line, error.column),
            reason: error.message,
        })?;
        let origin = Origin { yaml: Some(text.to_owned()), ..Origin::file(file) };
        Section::root(&origin, &root)?;
        let folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { root, origin, folder })
    }

    /// Reads the scenario at `path`.
    ///
    /// # Errors
    /// The file cannot be read, and those of [`Document::from_yaml`].
    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| ScenarioError::Unreadable { path: path.to_owned(), reason })?;
        Self::from_yaml(&path.display().to_string(), &text)
    }

    /// The document with `settings` applied in order, each of which must have one value.
    ///
    /// # Errors
    /// A setting without a place in the document, or with several values.
    pub fn with(&self, settings: &[Setting]) -> Result<Self, ScenarioError> {
        let mut document = self.clone();
        for setting in settings {
            let [value] = &setting.values[..] else {
                let reason =
                    format!("one value is wanted, not {}: lists are for sweeps", setting.values.len());
                return Err(ScenarioError::Setting { text: setting.to_string(), reason });
            };
            document.set(&setting.key, value)?;
        }
        Ok(document)
    }

    /// Puts `value` under the dotted path `key`, as the command line asks; mappings on the way are made where they are absent.
    ///
    /// # Errors
    /// Something on the way is not a mapping. Whether the key is known is found out by [`Document::scenario`].
    pub(crate) fn set(&mut self, key: &str, value: &Value) -> Result<(), ScenarioError> {
        self.put(key, value)?;
        let within = format!("{key}.");
        self.origin.settings.retain(|key, _| !key.starts_with(&within));
        self.origin.settings.insert(key.to_owned(), format!("{key}={}", written(value)));
        Ok(())
    }

    /// The same, as the document itself asks: what it says of places and paths stays.
    pub(crate) fn put(&mut self, key: &str, value: &Value) -> Result<(), ScenarioError> {
        let text = format!("{key}={}", written(value));
        let mut here = &mut self.root;
        let mut path = String::new();
        for step in key.split('.') {
            if here.is_null() {
                *here = Value::Object(Map::new());
            }
            let Value::Object(entries) = here else {
                let reason = format!("{path} is {}, it has no keys: set {path} as a whole", shown(here));
                return Err(ScenarioError::Setting { text, reason });
            };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(step);
            here = entries.entry(step).or_insert(Value::Null);
        }
        *here = value.clone();
        Ok(())
    }
}
