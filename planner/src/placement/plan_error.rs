//! The error of a document that does not match its machine or model.

/// A plan that does not match its machine or model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is {value}: {wanted}", path.join("."))]
pub struct PlanError {
    /// Path of the key in the plan.
    pub path: Vec<String>,
    /// The value there.
    pub value: String,
    /// The values that are valid there.
    pub wanted: String,
}

impl PlanError {
    pub(crate) fn new(path: &[&str], value: impl ToString, wanted: impl Into<String>) -> Self {
        let path = path.iter().map(|&step| step.to_owned()).collect();
        Self { path, value: value.to_string(), wanted: wanted.into() }
    }

    pub(crate) fn under(mut self, outer: [String; 2]) -> Self {
        self.path.splice(0..0, outer);
        self
    }
}
