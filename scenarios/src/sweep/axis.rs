//! What one dimension of a sweep sets: a key, several keys that change together, or the columns of a table.

use crate::input::error::ScenarioError;
use crate::input::section::shown;
use crate::input::setting::Setting;
use hwprofiles::{Rows, TableError, yaml};
use serde_json::Value;
use std::io::BufRead;

/// Keys, and the values that they have together, one row after the other: at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Dotted paths.
    pub keys: Vec<String>,
    /// A value for each key; where it is absent, the key stays as it is in the scenario.
    pub rows: Vec<Vec<Option<Value>>>,
    /// Whether the scenario itself brings them along: relative paths start at its folder.
    pub of_document: bool,
}

impl From<Setting> for Axis {
    fn from(Setting { key, values }: Setting) -> Self {
        let rows = values.into_iter().map(|value| vec![Some(value)]).collect();
        Self { keys: vec![key], rows, of_document: false }
    }
}

impl Axis {
    /// The axes of `settings`, in their order, where those whose keys stand together in one of `zipped` are one axis, at the
    /// place of the first of them.
    ///
    /// # Errors
    /// A zipped key is not set, or lists that go together are of different lengths.
    pub fn all(settings: Vec<Setting>, zipped: &[Vec<String>]) -> Result<Vec<Self>, ScenarioError> {
        let mut axes: Vec<Self> = settings.into_iter().map(Self::from).collect();
        for keys in zipped {
            let text = keys.join(",");
            let error = |reason: String| ScenarioError::Zip { text: text.clone(), reason };
            let place = |key: &String| axes.iter().position(|axis| axis.keys.contains(key));
            let mut places = Vec::new();
            for key in keys {
                let at = place(key).ok_or_else(|| error(format!("{key} is not set: --set {key}=1,2,4")))?;
                if !places.contains(&at) {
                    places.push(at);
                }
            }
            places.sort_unstable();
            let Some((&first, others)) = places.split_first() else { continue };
            for &other in others.iter().rev() {
                let Axis { keys, rows, .. } = axes.remove(other);
                let (ours, theirs) = (axes[first].rows.len(), rows.len());
                if ours != theirs {
                    let reason = format!(
                        "{} has {ours} values and {} has {theirs}: as many are wanted",
                        axes[first].keys[0], keys[0]
                    );
                    return Err(error(reason));
                }
                axes[first].keys.extend(keys);
                axes[first].rows.iter_mut().zip(rows).for_each(|(row, more)| row.extend(more));
            }
        }
        Ok(axes)
    }

    /// The rows of a CSV table whose columns are dotted paths; cells are YAML, empty ones leave the key as it is in the
    /// scenario.
    ///
    /// # Errors
    /// A table that is none, without a row, or with a cell that is not YAML: file, line and column.
    pub fn table(reader: impl BufRead, file: &str) -> Result<Self, TableError> {
        let mut rows = Rows::new(reader, file)?;
        let keys = rows.names().to_vec();
        for key in &keys {
            if key.split('.').any(str::is_empty) {
                return Err(rows.refuse_header(key, "a column's name is a dotted path, like workload.batch"));
            }
        }
        let mut all = Vec::new();
        while rows.advance()? {
            let mut row = Vec::with_capacity(keys.len());
            for column in 0..keys.len() {
                let text = String::from_utf8_lossy(rows.cell(column)).replace("\"\"", "\"");
                let value = match &*text {
                    "" => None,
                    text => Some(yaml::read(text, "value").map_err(|wrong| {
                        rows.refuse(
                            column,
                            format!("'{}' is not YAML: {}", rows.shown(column), wrong.message),
                        )
                    })?),
                };
                row.push(value);
            }
            all.push(row);
        }
        if all.is_empty() {
            return Err(rows.refuse_header("", "no row follows the columns' names"));
        }
        Ok(Self { keys, rows: all, of_document: false })
    }
}

/// A value as a setting writes it.
pub(crate) fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => shown(other),
    }
}
