//! A part as a table of at most 80 columns: its values and their sources.

use crate::library::profile::Profile;
use crate::machine::{Footnotes, paragraph};
use crate::units::Provenance;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The content of a part's file, flattened: one line per number, table or word.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartSheet {
    /// "a GPU", "a link", …
    pub kind: &'static str,
    /// The part's name.
    pub name: String,
    /// A note for readers, where its file has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The rest, in the order of the file.
    pub entries: Vec<SheetEntry>,
}

/// One line of a [`PartSheet`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SheetEntry {
    /// The path of the key: `peak.bf16`.
    pub key: String,
    /// The value as a text; for a table, its number of points.
    pub value: String,
    /// Where it came from. Words have no source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Provenance>,
}

impl Profile {
    /// The content of a part's file; `None` for machines, hosts and compositions, which are shown
    /// as machines.
    pub fn sheet(&self) -> Option<PartSheet> {
        let value = match self {
            Profile::Machine(_) | Profile::Host(_) | Profile::Composition(_) => return None,
            Profile::Gpu(part) => serde_json::to_value(part),
            Profile::Cpu(part) => serde_json::to_value(part),
            Profile::Link(part) => serde_json::to_value(part),
            Profile::Cxl(part) => serde_json::to_value(part),
            Profile::Nvme(part) => serde_json::to_value(part),
        };
        let Ok(Value::Object(mut keys)) = value else { return None };
        let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
        // The first key tells the kind, and its value is the name.
        let first = keys.keys().next()?.clone();
        let name = text(keys.shift_remove(&first))?;
        let note = text(keys.shift_remove("note"));
        let mut entries = Vec::new();
        flatten("", &keys, &mut entries);
        Some(PartSheet { kind: self.kind(), name, note, entries })
    }
}

fn flatten(path: &str, keys: &Map<String, Value>, entries: &mut Vec<SheetEntry>) {
    for (key, value) in keys {
        let key = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Object(keys) => match keys.get("source").map(Provenance::deserialize) {
                Some(Ok(source)) => {
                    let value = keys.get("value").map_or_else(|| table(keys), word);
                    entries.push(SheetEntry { key, value, source: Some(source) });
                }
                _ => flatten(&key, keys, entries),
            },
            Value::Array(names) => entries.extend(names.iter().map(|name| SheetEntry {
                key: key.clone(),
                value: word(name),
                source: None,
            })),
            other => entries.push(SheetEntry { key, value: word(other), source: None }),
        }
    }
}

/// The size of a table: a list of points, or a block of CSV with a header.
fn table(keys: &Map<String, Value>) -> String {
    let rows = keys.iter().filter(|(key, _)| *key != "source").map(|(_, value)| match value {
        Value::Array(points) => points.len(),
        Value::String(block) => block.lines().count().saturating_sub(1),
        _ => 0,
    });
    format!("{} points", rows.sum::<usize>())
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl fmt::Display for PartSheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {}", self.name, self.kind)?;
        if let Some(note) = &self.note {
            writeln!(f, "{}", paragraph("", note, 0))?;
        }
        let mut notes = Footnotes::default();
        writeln!(f)?;
        for SheetEntry { key, value, source } in &self.entries {
            let source = source.as_ref().map(|source| notes.cite(source)).unwrap_or_default();
            writeln!(f, "{}", format!("{key:<34} {value:>18}  {source}").trim_end())?;
        }
        write!(f, "\n{notes}")
    }
}
