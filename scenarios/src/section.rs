//! Typed reading of one mapping of a JSON or YAML document, with errors that name place, key and value.

use crate::error::ScenarioError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Where a document's values were written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Origin {
    /// File name, as messages show it.
    pub file: String,
    /// Line of each key, by dotted path; empty for JSON.
    pub lines: BTreeMap<String, u64>,
    /// Dotted paths that came from the command line, with the setting's text.
    pub settings: BTreeMap<String, String>,
}

impl Origin {
    /// An origin without lines.
    pub fn file(name: &str) -> Self {
        Self { file: name.to_owned(), ..Self::default() }
    }

    /// The place of `key`, or of the closest key around it.
    pub fn place(&self, key: &str) -> String {
        let mut path = key;
        loop {
            if let Some(text) = self.settings.get(path) {
                return format!("--set {text}");
            }
            if let Some(line) = self.lines.get(path) {
                return format!("{}:{line}", self.file);
            }
            match path.rsplit_once('.') {
                Some((parent, _)) => path = parent,
                None => return self.file.clone(),
            }
        }
    }
}

/// One mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    origin: &'a Origin,
    path: &'a str,
    entries: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    /// The document's root.
    pub fn root(origin: &'a Origin, value: &'a Value) -> Result<Self, ScenarioError> {
        match value {
            Value::Object(entries) => Ok(Self { origin, path: "", entries }),
            other => Err(ScenarioError::Value {
                place: origin.file.clone(),
                key: "the document".to_owned(),
                value: shown(other),
                wanted: "a mapping of keys to values is wanted".to_owned(),
            }),
        }
    }

    /// The mapping under `key` of the root, if it is there.
    pub fn section(&self, key: &'a str) -> Result<Option<Self>, ScenarioError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(entries)) => Ok(Some(Self { origin: self.origin, path: key, entries })),
            Some(_) => Err(self.wrong(key, "a mapping of keys to values is wanted")),
        }
    }

    /// The value under `key`; null counts as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    /// Whether `key` is written, be it as null.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// A whole number from 1 to `limit`.
    pub fn count(&self, key: &str, limit: u64) -> Result<Option<u64>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(count) if (1..=limit).contains(&count) => Ok(Some(count)),
            _ => Err(self.wrong(key, &format!("a whole number from 1 to {limit} is wanted"))),
        }
    }

    /// A finite number above 0.
    pub fn positive(&self, key: &str) -> Result<Option<f64>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(key, "a number above 0 is wanted")),
        }
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(key, "true or false is wanted"))
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(key, "a text is wanted"))
    }

    /// The error of a value that is wrong.
    pub fn wrong(&self, key: &str, wanted: &str) -> ScenarioError {
        let full = self.full(key);
        ScenarioError::Value {
            place: self.origin.place(&full),
            value: self.shown(key),
            key: full,
            wanted: wanted.to_owned(),
        }
    }

    /// The error of a key that is absent.
    pub fn missing(&self, key: &str, wanted: &str) -> ScenarioError {
        let full = self.full(key);
        ScenarioError::Missing { place: self.origin.place(&full), key: full, wanted: wanted.to_owned() }
    }

    /// The error of a value that asks for too much.
    pub fn unsupported(&self, key: &str, feature: &str, instead: &str) -> ScenarioError {
        let full = self.full(key);
        ScenarioError::Unsupported {
            place: self.origin.place(&full),
            value: self.shown(key),
            key: full,
            reason: format!("{feature} is not supported: {instead}"),
        }
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn shown(&self, key: &str) -> String {
        self.entries.get(key).map_or_else(|| "absent".to_owned(), shown)
    }
}

/// A value as JSON, cut where it is long.
pub(crate) fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
