//! A document: a scenario's YAML, with the settings of the command line applied.

use crate::input::error::ScenarioError;
use crate::input::section::{DocumentSection, DocumentSource, setting_text, shown};
use crate::input::setting::Setting;
use hwprofiles::{is_stdin, yaml};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The untyped values of a scenario's file. Settings are applied here, before anything is typed, so
/// that they are checked as strictly as the file itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub(crate) root: Value,
    pub(crate) source: DocumentSource,
    /// The file's folder, at which its relative paths start.
    pub(crate) folder: PathBuf,
}

impl Document {
    /// Reads a scenario's text. `file` is its path in messages; relative paths in the text start at
    /// the folder of `file`, those of standard input at the current folder.
    ///
    /// # Errors
    /// The text is not YAML, not a mapping, or a plan.
    pub fn from_yaml(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let root: Value = yaml::read(text, file).map_err(|error| ScenarioError::Syntax {
            place: format!("{file}:{}:{}", error.line, error.column),
            reason: error.message,
        })?;
        let source = DocumentSource { yaml: Some(text.to_owned()), ..DocumentSource::from_file(file) };
        DocumentSection::root(&source, &root)?;
        if root.get("plan").is_some() {
            let reason = "a plan, and a scenario is wanted: explain, export, sim and report read plans";
            return Err(ScenarioError::Syntax { place: file.to_owned(), reason: reason.to_owned() });
        }
        let folder = Path::new(file).parent().filter(|_| !is_stdin(Path::new(file)));
        let folder = folder.unwrap_or(Path::new("")).to_owned();
        Ok(Self { root, source, folder })
    }

    /// Reads the scenario at `path`.
    ///
    /// # Errors
    /// The file cannot be read, and the errors of [`Document::from_yaml`].
    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let text = hwprofiles::read_text(path)
            .map_err(|reason| ScenarioError::Unreadable { path: path.to_owned(), reason })?;
        Self::from_yaml(&path.display().to_string(), &text)
    }

    /// The document with `settings` applied in order. Each setting must have exactly one value.
    ///
    /// # Errors
    /// A setting has no place in the document, or several values.
    pub fn with_settings(&self, settings: &[Setting]) -> Result<Self, ScenarioError> {
        let mut document = self.clone();
        for setting in settings {
            let [value] = &setting.values[..] else {
                let reason = format!(
                    "one value is wanted, not {}: lists are for sweeps, and a text with commas stands in quotes \
                     (--set '{}=\"…\"')",
                    setting.values.len(),
                    setting.key
                );
                return Err(ScenarioError::Setting { text: setting.to_string(), reason });
            };
            document.set_from_command_line(&setting.key, value)?;
        }
        Ok(document)
    }

    /// Sets the dotted path `key` to a value from the command line. Absent mappings on the way are
    /// created.
    ///
    /// # Errors
    /// Something on the way is not a mapping. [`Document::scenario`] checks whether the key is
    /// known.
    pub(crate) fn set_from_command_line(&mut self, key: &str, value: &Value) -> Result<(), ScenarioError> {
        self.set_from_document(key, value)?;
        let within = format!("{key}.");
        self.source.settings.retain(|key, _| !key.starts_with(&within));
        self.source.settings.insert(key.to_owned(), format!("{key}={}", setting_text(value)));
        Ok(())
    }

    /// Sets the dotted path `key` to a value from the document itself. Messages then name the file,
    /// and relative paths start at its folder.
    ///
    /// # Errors
    /// Something on the way is not a mapping.
    pub(crate) fn set_from_document(&mut self, key: &str, value: &Value) -> Result<(), ScenarioError> {
        let text = format!("{key}={}", setting_text(value));
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
