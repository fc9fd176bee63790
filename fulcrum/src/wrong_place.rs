//! Where an input is wrong, for those who show it beside the input.

use crate::error::Error;
use hwprofiles::{FileError, ProfileError};
use scenarios::ScenarioError;
use serde::Serialize;
use serde_json::{Value, json};
use std::error::Error as StdError;

/// Where an input is wrong and what would be right, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WrongPlace {
    /// The file, with the line where it is known.
    pub place: Option<String>,
    /// The key, as a dotted path.
    pub key: Option<String>,
    /// The value that was written.
    pub value: Option<String>,
    /// What would be right.
    pub wanted: Option<String>,
}

impl From<&Error> for WrongPlace {
    /// What is known of an error. Only wrong input has a place.
    fn from(error: &Error) -> Self {
        match error {
            Error::Input(detail) => Self::from_cause(detail.cause()),
            Error::Infeasible(_) | Error::Failed(_) => Self::default(),
        }
    }
}

impl Error {
    /// The error for programs: `{"error": {…}}` with its kind (`input`, `infeasible` or `failed`),
    /// its text, and where an input is wrong.
    pub fn to_json(&self) -> Value {
        let kind = match self {
            Self::Input(_) => "input",
            Self::Infeasible(_) => "infeasible",
            Self::Failed(_) => "failed",
        };
        let WrongPlace { place, key, value, wanted } = WrongPlace::from(self);
        json!({"error": {
            "kind": kind, "text": self.to_string(), "place": place, "key": key, "value": value, "wanted": wanted,
        }})
    }
}

impl WrongPlace {
    fn from_cause(cause: &(dyn StdError + 'static)) -> Self {
        let some = |text: &String| Some(text.clone());
        if let Some(FileError { file, line, column, key, message }) = cause.downcast_ref() {
            let place = Some(format!("{file}:{line}:{column}"));
            return Self { place, key: some(key), value: None, wanted: some(message) };
        }
        if let Some(ProfileError::Wrong(error)) = cause.downcast_ref() {
            return Self::from_cause(error);
        }
        let Some(error) = cause.downcast_ref() else { return Self::default() };
        match error {
            ScenarioError::Value { place, key, value, wanted }
            | ScenarioError::Unsupported { place, key, value, reason: wanted } => {
                Self { place: some(place), key: some(key), value: some(value), wanted: some(wanted) }
            }
            ScenarioError::Missing { place, key, wanted } => {
                Self { place: some(place), key: some(key), value: None, wanted: some(wanted) }
            }
            ScenarioError::UnknownKey { place, key, meant, known } => {
                let wanted = Some(format!("{meant}{known}"));
                Self { place: some(place), key: some(key), value: None, wanted }
            }
            ScenarioError::Syntax { place, reason } => {
                Self { place: some(place), wanted: some(reason), ..Self::default() }
            }
            ScenarioError::Setting { text, reason } => {
                Self { value: some(text), wanted: some(reason), ..Self::default() }
            }
            ScenarioError::UnknownPreset { name, known } => Self {
                key: Some("model".to_owned()),
                value: some(name),
                wanted: some(known),
                ..Self::default()
            },
            ScenarioError::Machine(error) => Self::from_cause(error),
            ScenarioError::Within { error, .. } => Self::from_cause(&**error),
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_of_a_part_has_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("part.yaml");
        std::fs::write(&path, "cpu: mine\nnotte: none\n").expect("written");
        let workload = "workload: {batch: 1, prompt_tokens: 8, output_tokens: 8}";
        let scenario = format!("{{machine: {}, model: opt-125m, {workload}}}", path.display());
        let wrong = crate::plan(&crate::parse_scenario(&scenario).expect("valid")).expect_err("no key");
        let place = WrongPlace::from(&wrong);
        assert_eq!(place.place, Some(format!("{}:2:1", path.display())));
        assert_eq!(place.key.as_deref(), Some("notte"));
        assert!(place.wanted.is_some_and(|wanted| wanted.contains("did you mean `note`?")));
    }

    #[test]
    fn a_wrong_value_has_its_place_and_what_does_not_fit_has_none() {
        let ask = |scenario: &str| crate::plan(&crate::parse_scenario(scenario)?);
        let workload = "workload: {batch: 0, prompt_tokens: 8, output_tokens: 8}";
        let wrong = ask(&format!("{{machine: l4, model: opt-125m, {workload}}}")).expect_err("no batch");
        let place = WrongPlace::from(&wrong);
        assert_eq!((place.key.as_deref(), place.value.as_deref()), (Some("workload.batch"), Some("0")));
        assert!(place.place.is_some() && place.wanted.is_some());
        let workload = "workload: {batch: 1, prompt_tokens: 8, output_tokens: 8}";
        let large = ask(&format!("{{machine: l4, model: deepseek-v3, {workload}}}")).expect_err("too large");
        assert_eq!(WrongPlace::from(&large), WrongPlace::default());
    }
}
