//! Typed reading of one mapping of a JSON or YAML document. Errors name place, key and value.

use crate::input::error::ScenarioError;
use hwprofiles::{UnitError, nearest_key, yaml};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Where the values of a document come from: a file, and settings of the command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DocumentSource {
    /// File name, as messages show it.
    pub file: String,
    /// The document's text if it is YAML. The line of a key is looked up in it when an error needs
    /// it.
    pub yaml: Option<String>,
    /// Keys that came from the command line, as dotted paths, each with the setting's text.
    pub settings: BTreeMap<String, String>,
    /// Where the machine is written, if not under `machine`: one of `capacity.machines`.
    pub machine_at: Option<String>,
}

impl DocumentSource {
    /// A file without line numbers.
    pub fn from_file(name: &str) -> Self {
        Self { file: name.to_owned(), ..Self::default() }
    }

    /// The path under which `key` is written.
    fn written(&self, key: &str) -> String {
        let behind = key.strip_prefix("machine").filter(|rest| rest.is_empty() || rest.starts_with('.'));
        match (&self.machine_at, behind) {
            (Some(path), Some(rest)) => format!("{path}{rest}"),
            _ => key.to_owned(),
        }
    }

    /// The name of `key` in messages: its path as it is written, `capacity.machines[0]`.
    pub fn name(&self, key: &str) -> String {
        let written = self.written(key);
        if written == key {
            return written;
        }
        let mut name = String::new();
        for step in written.split('.') {
            match step.parse::<usize>() {
                Ok(index) => name += &format!("[{index}]"),
                Err(_) if name.is_empty() => name += step,
                Err(_) => name += &format!(".{step}"),
            }
        }
        name
    }

    /// The place of `key`, or of the closest mapping around it.
    pub fn place(&self, key: &str) -> String {
        let key = &*self.written(key);
        let ends = key.char_indices().filter(|(_, c)| *c == '.').map(|(end, _)| end).chain([key.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &key[..end]).collect();
        if let Some(text) = prefixes.iter().rev().find_map(|prefix| self.settings.get(*prefix)) {
            return format!("--set {text}");
        }
        // The mapping exists only because a setting created it on the way to its own key.
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

/// One mapping of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DocumentSection<'a> {
    source: &'a DocumentSource,
    path: &'a str,
    entries: &'a Map<String, Value>,
    /// Values of keys that the document leaves out; messages still call them absent.
    defaults: Option<&'a Map<String, Value>>,
}

impl<'a> DocumentSection<'a> {
    /// The document's root.
    pub fn root(source: &'a DocumentSource, value: &'a Value) -> Result<Self, ScenarioError> {
        match value {
            Value::Object(entries) => Ok(Self { source, path: "", entries, defaults: None }),
            other => Err(ScenarioError::Value {
                place: source.place(""),
                key: "the document".to_owned(),
                value: shown(other),
                wanted: "a mapping of keys to values is wanted".to_owned(),
            }),
        }
    }

    /// The mapping `value`, which is at `path` of the document.
    pub fn at(source: &'a DocumentSource, path: &'a str, value: &'a Value) -> Result<Self, ScenarioError> {
        match value {
            Value::Object(entries) => Ok(Self { source, path, entries, defaults: None }),
            other => Err(ScenarioError::Value {
                place: source.place(path),
                key: path.to_owned(),
                value: shown(other),
                wanted: "a mapping of keys to values is wanted".to_owned(),
            }),
        }
    }

    /// The mapping under `key` of the root, if it is present. `key` may be a dotted path.
    pub fn section(&self, key: &'a str) -> Result<Option<Self>, ScenarioError> {
        let mut steps = key.split('.');
        let first = steps.next().and_then(|step| self.get(step));
        match steps.fold(first, |value, step| value?.get(step).filter(|value| !value.is_null())) {
            None => Ok(None),
            Some(Value::Object(entries)) => {
                Ok(Some(Self { source: self.source, path: key, entries, defaults: None }))
            }
            Some(_) => Err(self.wrong(key, "a mapping of keys to values is wanted")),
        }
    }

    /// The same mapping, in which absent keys have the values of `defaults`.
    pub fn with_defaults(self, defaults: Option<&'a Map<String, Value>>) -> Self {
        Self { defaults, ..self }
    }

    /// Whether the document itself has `key`.
    pub fn writes(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Its keys, in the order of the document.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.entries.keys().map(String::as_str)
    }

    /// The value under `key`; null counts as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        let default = || self.defaults.and_then(|defaults| defaults.get(key));
        self.entries.get(key).or_else(default).filter(|value| !value.is_null())
    }

    /// Whether `key` is present, even with the value null.
    pub fn has(&self, key: &str) -> bool {
        self.writes(key) || self.defaults.is_some_and(|defaults| defaults.contains_key(key))
    }

    /// Refuses keys that are not in `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), ScenarioError> {
        self.only_beside(known, [])
    }

    /// The same; the paths `elsewhere` are named where an unknown key is the last step of one.
    pub fn only_beside<'k>(
        &self,
        known: &[&'k str],
        elsewhere: impl IntoIterator<Item = &'k str>,
    ) -> Result<(), ScenarioError> {
        let Some(key) = self.entries.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let is_last = |path: &&str| path.rsplit_once('.').is_some_and(|(_, last)| last == key);
        let near = nearest_key(key, known).or_else(|| elsewhere.into_iter().find(is_last));
        Err(ScenarioError::UnknownKey {
            place: self.source.place(&self.full(key)),
            key: self.full(key),
            meant: near.map_or(String::new(), |near| format!("did you mean {near}? ")),
            known: known.join(", "),
        })
    }

    /// Reads a whole number from 1 to `limit`.
    pub fn count(&self, key: &str, limit: u64) -> Result<Option<u64>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(count) if (1..=limit).contains(&count) => Ok(Some(count)),
            _ => Err(self.wrong(key, &format!("a whole number from 1 to {limit} is wanted"))),
        }
    }

    /// Reads a whole number from 1 to `most`, or a list of distinct ones; returns them in ascending
    /// order.
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

    /// Reads true or false, or a list of both; false comes first.
    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let flags: Option<BTreeSet<bool>> = all.iter().map(Value::as_bool).collect();
        match flags.filter(|flags| !flags.is_empty() && flags.len() == all.len()) {
            Some(flags) => Ok(Some(flags.into_iter().collect())),
            None => Err(self.wrong(key, "true, false or [false, true] is wanted")),
        }
    }

    /// Reads a finite number above 0.
    pub fn positive(&self, key: &str) -> Result<Option<f64>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(key, "a number above 0 is wanted")),
        }
    }

    /// Reads true or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(key, "true or false is wanted"))
    }

    /// Reads a text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ScenarioError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(key, "a text is wanted"))
    }

    /// Reads a quantity above 0 with its unit. Messages name it `what` and show `example`.
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

    /// The error for a wrong value.
    pub fn wrong(&self, key: &str, wanted: &str) -> ScenarioError {
        let full = self.full(key);
        ScenarioError::Value {
            place: self.source.place(&full),
            value: self.shown(key),
            key: full,
            wanted: wanted.to_owned(),
        }
    }

    /// The error for an absent key.
    pub fn missing(&self, key: &str, wanted: &str) -> ScenarioError {
        let full = self.full(key);
        ScenarioError::Missing { place: self.source.place(&full), key: full, wanted: wanted.to_owned() }
    }

    /// The error for a value that is not supported.
    pub fn unsupported(&self, key: &str, feature: &str, instead: &str) -> ScenarioError {
        let full = self.full(key);
        ScenarioError::Unsupported {
            place: self.source.place(&full),
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

/// A value as JSON, shortened if it is long.
pub(crate) fn shown(value: &Value) -> String {
    const MAX_CHARACTERS: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A value as a setting of the command line writes it: texts without quotes.
pub(crate) fn setting_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => shown(other),
    }
}
