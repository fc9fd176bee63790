//! An axis of a sweep: one key, several keys that change together, or the columns of a table.

use crate::input::error::ScenarioError;
use crate::input::setting::Setting;
use hwprofiles::{RowsError, TableRows, yaml};
use serde_json::Value;
use std::io::BufRead;

/// Keys, and rows of values that they take together; at least one row.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepAxis {
    /// The keys, as dotted paths.
    pub keys: Vec<String>,
    /// One value for each key; `None` leaves the scenario's own value.
    pub rows: Vec<Vec<Option<Value>>>,
    /// Whether the axis is part of the scenario's file; relative paths then start at its folder.
    pub from_document: bool,
}

impl From<Setting> for SweepAxis {
    fn from(Setting { key, values }: Setting) -> Self {
        let rows = values.into_iter().map(|value| vec![Some(value)]).collect();
        Self { keys: vec![key], rows, from_document: false }
    }
}

impl SweepAxis {
    /// Makes one axis of each setting, in their order. Settings whose keys are together in one
    /// entry of `zipped` become one axis, at the place of the first of them.
    ///
    /// # Errors
    /// A zipped key is not set, or zipped lists have different lengths.
    pub fn from_settings(settings: Vec<Setting>, zipped: &[Vec<String>]) -> Result<Vec<Self>, ScenarioError> {
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
                let SweepAxis { keys, rows, .. } = axes.remove(other);
                let (ours, theirs) = (axes[first].rows.len(), rows.len());
                if ours != theirs {
                    let reason = format!(
                        "{} has {ours} values and {} has {theirs}: as many are wanted",
                        axes[first].keys[0], keys[0]
                    );
                    return Err(error(reason));
                }
                axes[first].keys.extend(keys);
                axes[first].rows.iter_mut().zip(rows).for_each(|(row, values)| row.extend(values));
            }
        }
        Ok(axes)
    }

    /// Reads an axis from a CSV table. Columns are named by dotted paths, cells are YAML, and an
    /// empty cell leaves the scenario's own value.
    ///
    /// # Errors
    /// The table is malformed, has no row, or has a cell that is not YAML. The error names file,
    /// line and column.
    pub fn from_csv(reader: impl BufRead, file: &str) -> Result<Self, RowsError> {
        let mut rows = TableRows::new(reader, file)?;
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
        Ok(Self { keys, rows: all, from_document: false })
    }
}
