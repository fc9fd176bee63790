//! Typed reading of one mapping of a JSON or YAML document, with errors that name place, key and value.

use crate::input::error::ScenarioError;
use hwprofiles::UnitError;
use hwprofiles::yaml;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Where a document's values were written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Origin {
    /// File name, as messages show it.
    pub file: String,
    /// The document's text where it is YAML, in which the line of a key is looked up once it is wanted.
    pub yaml: Option<String>,
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
        let ends = key.char_indices().filter(|(_, c)| *c == '.').map(|(end, _)| end).chain([key.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &key[..end]).collect();
        if let Some(text) = prefixes.iter().rev().find_map(|prefix| self.settings.get(*prefix)) {
            return format!("--set {text}");
        }
        // A mapping that is only there because a setting reached into it.
        let within = format!("{key}.");
        if let Some((_, text)) = self.settings.iter().find(|(path, _)| path.starts_with(&within)) {
            return format!("--set {text}");
        }
        match &self.yaml {
            None => self.file.clone(),
            Some(text) => {
                let steps: Vec<&str> = key.split('.').collect();
                let found = yaml::refuse(text, &self.file, &steps, String::new());
                format!("{}:{}:{}", self.file, found.line, found.column)
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
                place: origin.place(""),
                key: "the document".to_owned(),
                value: shown(other),
                wanted: "a mapping of keys to values is wanted".to_owned(),
            }),
        }
    }

    /// The mapping `value`, which stands at `path` of the document.
    pub fn at(origin: &'a Origin, path: &'a str, value: &'a Value) -> Result<Self, ScenarioError> {
        match value {
            Value::Object(entries) => Ok(Self { origin, path, entries }),
            other => Err(ScenarioError::Value {
                place: origin.place(path),
                key: path.to_owned(),
                value: shown(other),
                wanted: "a mapping of keys to values is wanted".to_owned(),
            }),
        }
    }

    /// The mapping under `key` of the root, which may be a dotted path, if it is there.
    pub fn section(&self, key: &'a str) -> Result<Option<Self>, ScenarioError> {
        let mut steps = key.split('.');
        let first = steps.next().and_then(|step| self.get(step));
        match steps.fold(first, |value, step| value?.get(step).filter(|value| !value.is_null())) {
            None => Ok(None),
            Some(Value::Object(entries)) => Ok(Some(Self { origin: self.origin, path: key, entries })),
            Some(_) => Err(self.wrong(key, "a mapping of keys to values is wanted")),
        }
    }

    /// Its keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.entries.keys().map(String::as_str)
    }

    /// The value under `key`; null counts as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    /// Whether `key` is written, be it as null.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Refuses keys outside of `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), ScenarioError> {
        match self.entries.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(ScenarioError::UnknownKey {
                place: self.origin.place(&self.full(key)),
                key: self.full(key),
                known: known.join(", "),
            }),
        }
    }

    /// A whole number from 1 to `limit`.
    pub fn count(&self, key: &str, limit: u64) -> Result<Option<u64>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(count) if (1..=limit).contains(&count) => Ok(Some(count)),
            _ => Err(self.wrong(key, &format!("a whole number from 1 to {limit} is wanted"))),
        }
    }

    /// A whole number from 1 to `most`, or a list of different ones, ascending.
    pub fn counts(&self, key: &str, most: u64) -> Result<Option<Vec<u64>>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let count = |value: &Value| value.as_u64().filter(|count| (1..=most).contains(count));
        let counts: Option<BTreeSet<u64>> = all.iter().map(count).collect();
        match counts.filter(|counts| !counts.is_empty() && counts.len() == all.len()) {
            Some(counts) => Ok(Some(counts.into_iter().collect())),
            None => {
                let wanted =
                    format!("a whole number from 1 to {most}, or a list of different ones, is wanted");
                Err(self.wrong(key, &wanted))
            }
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

    /// A quantity above 0, written as a text with its unit: `what` it is, and an example.
    pub fn quantity<T: FromStr<Err = UnitError>>(
        &self,
        key: &str,
        [what, example]: [&str; 2],
        number: impl Fn(&T) -> f64,
    ) -> Result<Option<T>, ScenarioError> {
        if self.get(key).is_some_and(|value| !value.is_string()) {
            return Err(self.wrong(key, &format!("{what} with its unit is wanted, like \"{example}\"")));
        }
        let Some(text) = self.text(key)? else { return Ok(None) };
        let quantity: T = text.parse().map_err(|error| self.wrong(key, &format!("{error}")))?;
        match number(&quantity) > 0.0 {
            true => Ok(Some(quantity)),
            false => Err(self.wrong(key, &format!("{what} above 0 is wanted"))),
        }
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
        let mut steps = key.split('.');
        let first = steps.next().and_then(|step| self.entries.get(step));
        let value = steps.fold(first, |value, step| value.and_then(|value| value.get(step)));
        value.map_or_else(|| "absent".to_owned(), shown)
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
