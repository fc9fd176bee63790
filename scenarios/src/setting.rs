//! `--set key=value`: a scenario's key, set from the command line by its dotted path.

use crate::error::ScenarioError;
use crate::section::shown;
use hwprofiles::yaml;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// A key and the values it shall have, one after the other.
///
/// Values are YAML, separated by commas; a comma within quotes, brackets or braces separates nothing:
/// `workload.batch=1,8,32`, `dtype={weights: int4, kv: bf16}`, `model="folder, with comma"`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Dotted path.
    pub key: String,
    /// At least one.
    pub values: Vec<Value>,
}

impl FromStr for Setting {
    type Err = ScenarioError;

    /// # Errors
    /// There is no `=`, a part of the path or a value is empty, or a value is not YAML.
    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let error = |reason: String| ScenarioError::Setting { text: text.to_owned(), reason };
        let (key, values) = text
            .split_once('=')
            .ok_or_else(|| error("key=value is wanted, like workload.batch=1,8".to_owned()))?;
        let key = key.trim();
        if key.split('.').any(str::is_empty) {
            return Err(error("the key is a dotted path, like workload.batch".to_owned()));
        }
        let values = split(values).into_iter().map(|piece| {
            if piece.trim().is_empty() {
                return Err(error("a value is missing (write null to take a key away)".to_owned()));
            }
            yaml::read(piece, "value")
                .map_err(|wrong| error(format!("'{}' is not YAML: {}", piece.trim(), wrong.message)))
        });
        Ok(Self { key: key.to_owned(), values: values.collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for Setting {
    /// As it would be written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<_> = self.values.iter().map(written).collect();
        write!(f, "{}={}", self.key, values.join(","))
    }
}

impl Setting {
    /// The setting of value `index` alone.
    pub(crate) fn text(&self, index: usize) -> String {
        format!("{}={}", self.key, written(&self.values[index]))
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => shown(other),
    }
}

/// Cuts at the commas outside of quotes, brackets and braces.
fn split(text: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) => quote = if c == open { None } else { quote },
            // A quote within a word (it's) opens nothing.
            (None, '"' | '\'') if depth > 0 || text[start..at].trim().is_empty() => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}
