//! The axes of a sweep in a scenario's file.
//!
//! ```yaml
//! sweep:
//!   workload.batch: [1, 8, 64]              # combined with every value of the other keys
//!   workload.prompt_tokens: 512..8192*2     # a range
//!   # Values that change together.
//!   machine.gpu, machine.link: [[l4, pcie4-x16], [h100-sxm, pcie5-x16]]
//! ```

use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::input::section::{DocumentSection, shown};
use crate::input::setting::range;
use crate::sweep::axis::SweepAxis;
use serde_json::Value;

impl Document {
    /// The axes of a sweep: the document's own of keys that `given` does not set, then `given`.
    ///
    /// # Errors
    /// As [`Document::sweep_axes`].
    pub fn axes_with(&self, given: Vec<SweepAxis>) -> Result<Vec<SweepAxis>, ScenarioError> {
        let is_given = |key: &String| given.iter().any(|axis| axis.keys.contains(key));
        let mut axes = self.sweep_axes()?;
        axes.retain(|axis| !axis.keys.iter().any(is_given));
        axes.extend(given);
        Ok(axes)
    }

    /// Reads the axes under `sweep`, in the order of the file; none if the key is absent.
    ///
    /// # Errors
    /// A value is not a list, a list is empty, or a row does not have one value for each key.
    pub fn sweep_axes(&self) -> Result<Vec<SweepAxis>, ScenarioError> {
        const WANTED: &str = "a list of values is wanted, or a range like 1..256*2; of keys that go together (\"a.b, c.d\") a list \
                              of lists, each with a value for each key";
        let root = DocumentSection::root(&self.source, &self.root)?;
        let Some(Value::Object(lists)) = root.get("sweep") else {
            return match root.get("sweep") {
                None => Ok(vec![]),
                Some(_) => Err(root.wrong("sweep", "keys with their lists of values are wanted")),
            };
        };
        let axis = |(written, values): (&String, &Value)| -> Result<SweepAxis, ScenarioError> {
            let wrong = || ScenarioError::Value {
                place: self.source.place("sweep"),
                key: format!("sweep.{written}"),
                value: shown(values),
                wanted: WANTED.to_owned(),
            };
            let keys: Vec<String> = written.split(',').map(|key| key.trim().to_owned()).collect();
            if keys.iter().any(|key| key.split('.').any(str::is_empty)) {
                return Err(wrong());
            }
            let values = match values {
                Value::String(text) => range(text).and_then(Result::ok).ok_or_else(wrong)?,
                Value::Array(values) if !values.is_empty() => values.clone(),
                _ => return Err(wrong()),
            };
            let row = |value: Value| match (keys.len(), value) {
                (1, value) => Some(vec![Some(value)]),
                (several, Value::Array(row)) if row.len() == several => {
                    Some(row.into_iter().map(Some).collect())
                }
                _ => None,
            };
            let rows = values.into_iter().map(row).collect::<Option<_>>().ok_or_else(wrong)?;
            Ok(SweepAxis { keys, rows, from_document: true })
        };
        lists.iter().map(axis).collect()
    }
}
