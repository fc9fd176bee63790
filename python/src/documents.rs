//! Scenarios as they come from Python: the text of a dictionary as JSON, or of a file.

use fulcrum::{Document, OrError, PreparedScenario, Result};
use scenarios::SweepAxis;
use serde_json::Value;

/// The document of `text`, JSON or YAML. `name` is what messages call it; relative paths start at
/// its folder.
pub fn document(text: &str, name: &str) -> Result<Document> {
    Document::from_yaml(name, text).or_input()
}

/// The scenario of `text` with everything that it names.
pub fn prepared(text: &str, name: &str) -> Result<PreparedScenario> {
    PreparedScenario::new(&document(text, name)?.scenario_with(&[]).or_input()?)
}

/// The axes of a sweep: the document's own lists, except of keys in `given`; then `given`, each
/// with its keys and a row of values for each step.
pub fn axes(document: &Document, given: Vec<(Vec<String>, Vec<Vec<Value>>)>) -> Result<Vec<SweepAxis>> {
    let given = given.into_iter().map(|(keys, rows)| SweepAxis {
        keys,
        rows: rows.into_iter().map(|row| row.into_iter().map(Some).collect()).collect(),
        from_document: false,
    });
    document.axes_with(given.collect()).or_input()
}
