//! A GGUF header whose values are read by the architecture's keys.

use crate::input::error::ScenarioError;
use crate::model::gguf::header::Gguf;
use serde_json::Value;

/// A header with its file's name and its architecture.
pub(super) struct NamedHeader<'a> {
    pub file: &'a str,
    pub gguf: &'a Gguf,
    pub architecture: &'a str,
}

impl<'a> NamedHeader<'a> {
    /// The value under the architecture's `key`.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.gguf.metadata.get(&format!("{}.{key}", self.architecture))
    }

    /// The whole number under the architecture's `key`; `None` if it is absent or 0.
    pub fn count(&self, key: &str) -> Option<u64> {
        self.value(key).and_then(Value::as_u64).filter(|&count| count > 0)
    }

    pub fn unsupported(&self, key: &str, reason: &str) -> ScenarioError {
        let value = self.gguf.metadata.get(key).map_or_else(|| "absent".to_owned(), Value::to_string);
        let (place, key, reason) = (self.file.to_owned(), key.to_owned(), reason.to_owned());
        ScenarioError::Unsupported { place, key, value, reason }
    }

    /// The error for the value under the architecture's `key`.
    pub fn refused(&self, key: &str, reason: &str) -> ScenarioError {
        self.unsupported(&format!("{}.{key}", self.architecture), reason)
    }
}
