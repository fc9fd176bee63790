//! The engines that come with Fulcrum, and engines from files: one version, with what a scenario
//! changes.

use crate::input::error::ScenarioError;
use crate::question::engine_profile::EngineProfile;
use hwprofiles::{FileError, nearest_name, yaml};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::OnceLock;

/// Name and text of every shipped engine. The first is the default; the others say in what they
/// differ from it.
const SHIPPED: [(&str, &str); 9] = [
    ("fulcrum", include_str!("../../engines/fulcrum.yaml")),
    ("vllm", include_str!("../../engines/vllm.yaml")),
    ("sglang", include_str!("../../engines/sglang.yaml")),
    ("trtllm", include_str!("../../engines/trtllm.yaml")),
    ("llama.cpp", include_str!("../../engines/llama.cpp.yaml")),
    ("ik_llama.cpp", include_str!("../../engines/ik_llama.cpp.yaml")),
    ("ktransformers", include_str!("../../engines/ktransformers.yaml")),
    ("deepspeed-mii", include_str!("../../engines/deepspeed-mii.yaml")),
    ("optimum-habana", include_str!("../../engines/optimum-habana.yaml")),
];

/// The most heads to which a kernel fills up those of a rank.
const MOST_HEADS: u64 = 1024;

const BASE: &str = "fulcrum";

/// The sections that versions and scenarios change key by key.
const SECTIONS: [&str; 2] = ["serving", "execution"];

impl Default for EngineProfile {
    /// Fulcrum's own engine, with measured overheads only.
    fn default() -> Self {
        Self::shipped(BASE).expect("it is shipped")
    }
}

impl EngineProfile {
    /// Whether it reads GGUF files.
    pub fn reads_gguf(&self) -> bool {
        matches!(&*self.engine, "llama.cpp" | "ik_llama.cpp")
    }

    /// The names of the shipped engines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.into_iter().map(|(name, _)| name)
    }

    /// The newest version of the shipped engine of that name. Its file is read when it is asked for
    /// first: the points of a sweep share an engine.
    pub fn shipped(name: &str) -> Option<Self> {
        static READ: [OnceLock<EngineProfile>; SHIPPED.len()] = [const { OnceLock::new() }; SHIPPED.len()];
        let index = SHIPPED.iter().position(|(shipped, _)| *shipped == name)?;
        let read = || {
            let file = EngineFile::shipped(name).expect("it is shipped");
            file.engine(None, &Map::new()).expect("a test reads every shipped engine")
        };
        Some(READ[index].get_or_init(read).clone())
    }
}

/// An engine's file, before a version of it is chosen.
#[derive(Debug)]
pub(crate) struct EngineFile {
    file: String,
    text: String,
    root: Map<String, Value>,
}

impl EngineFile {
    /// The shipped engine of that name.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.into_iter().find(|(shipped, _)| *shipped == name)?;
        Some(Self::from_yaml(text, &format!("{name}.yaml")).expect("a test reads every shipped engine"))
    }

    /// The engine in a file of the user's.
    ///
    /// # Errors
    /// The file cannot be read, or is no mapping.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = hwprofiles::read_text(path)
            .map_err(|reason| ScenarioError::Unreadable { path: path.to_owned(), reason })?;
        Self::from_yaml(&text, &path.display().to_string()).map_err(syntax)
    }

    fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let root = yaml::read(text, file)?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), root })
    }

    /// The engine of `version`, the newest where absent, with the scenario's own `changes` to the
    /// sections `serving` and `execution`.
    ///
    /// # Errors
    /// A key is unknown or missing, or a value is wrong.
    pub fn engine(
        &self,
        version: Option<&str>,
        changes: &Map<String, Value>,
    ) -> Result<EngineProfile, FileError> {
        let mut engine = match self.root.get("engine").and_then(Value::as_str) {
            Some(BASE) => Map::new(),
            _ => Self::shipped(BASE).map(|base| base.root).unwrap_or_default(),
        };
        engine.remove("note");
        let mut own = self.root.clone();
        let versions = own.remove("versions");
        overlay(&mut engine, &own);
        for change in self.versions(versions)? {
            let since = change.get("from").and_then(Value::as_str).unwrap_or_default();
            if version.is_none_or(|version| numbers(since) <= numbers(version)) {
                overlay(&mut engine, &change);
            }
        }
        engine.remove("from");
        overlay(&mut engine, changes);
        if let Some(version) = version {
            engine.insert("version".to_owned(), Value::String(version.to_owned()));
        }
        let engine: EngineProfile = yaml::read_value(&Value::Object(engine), &self.file)?;
        if let Some((key, wanted)) = engine.serving.wrong_count() {
            return Err(self.refuse(&["serving", key], wanted));
        }
        match &engine.execution.sparse_heads {
            Some(heads) if !(1..=MOST_HEADS).contains(&heads.value) => {
                let wanted = format!("a whole number from 1 to {MOST_HEADS} is wanted");
                Err(self.refuse(&["execution", "sparse_heads"], wanted))
            }
            _ => Ok(engine),
        }
    }

    /// The changes of each version, the oldest first.
    fn versions(&self, written: Option<Value>) -> Result<Vec<Map<String, Value>>, FileError> {
        let wrong = || {
            let wanted = "a list of {from: \"1.2\", serving: {…}, execution: {…}} is wanted";
            self.refuse(&["versions"], wanted.to_owned())
        };
        let list = match written {
            None => vec![],
            Some(Value::Array(list)) => list,
            Some(_) => return Err(wrong()),
        };
        let known = [&["from"], &SECTIONS[..]].concat();
        let since = |change: &Map<String, Value>| change.get("from").is_some_and(Value::is_string);
        let change = |(index, value): (usize, Value)| match value {
            Value::Object(change) if since(&change) => {
                match change.keys().find(|key| !known.contains(&key.as_str())) {
                    Some(key) => {
                        let path = ["versions", &index.to_string(), key];
                        Err(self.refuse(&path, yaml::unknown_key(key, &known)))
                    }
                    None => Ok(change),
                }
            }
            _ => Err(wrong()),
        };
        let mut changes = list.into_iter().enumerate().map(change).collect::<Result<Vec<_>, _>>()?;
        changes.sort_by_key(|change| numbers(change["from"].as_str().unwrap_or_default()));
        Ok(changes)
    }

    fn refuse(&self, path: &[&str], wanted: String) -> FileError {
        yaml::refuse(&self.text, &self.file, path, wanted)
    }

    /// An error of this engine at its place in the file.
    pub fn located(&self, error: &FileError) -> ScenarioError {
        let path: Vec<&str> = error.key.split('.').collect();
        syntax(self.refuse(&path, error.message.clone()))
    }
}

/// The names that are nearest to one that is unknown, or all.
pub(crate) fn known_engines(name: &str) -> String {
    match nearest_name(name, EngineProfile::names()) {
        Some(nearest) => format!("did you mean {nearest}? {}", all_engines()),
        None => all_engines(),
    }
}

fn all_engines() -> String {
    let names: Vec<_> = EngineProfile::names().collect();
    format!("one of {} is wanted, or {{file: my-engine.yaml}}", names.join(", "))
}

/// Writes the keys of `changes` over those of `engine`, in each section key by key.
fn overlay(engine: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, value) in changes {
        match (engine.get_mut(key), value) {
            (Some(Value::Object(section)), Value::Object(changes)) if SECTIONS.contains(&key.as_str()) => {
                section.extend(changes.clone());
            }
            _ => {
                engine.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The numbers of a version: `1.0.0rc3` is 1, 0, 0. Letters end it.
fn numbers(version: &str) -> Vec<u64> {
    let digits = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().map(str::to_owned);
    version.split('.').map_while(|part| digits(part)?.parse().ok()).collect()
}

/// A value of a scenario in the form of an engine's file, in which numbers have a source.
pub(crate) fn sourced(value: &Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key("value") => value.clone(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), sourced(value))).collect(),
        Value::Number(_) | Value::String(_) => {
            json!({ "value": value, "source": { "estimated": { "reason": "chosen in the scenario" } } })
        }
        other => other.clone(),
    }
}

fn syntax(error: FileError) -> ScenarioError {
    let FileError { file, line, column, key, message } = error;
    ScenarioError::Syntax { place: format!("{file}:{line}:{column}"), reason: format!("{key}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_engine_is_read_under_its_own_name() {
        for name in EngineProfile::names() {
            assert_eq!(EngineProfile::shipped(name).map(|engine| engine.engine).as_deref(), Some(name));
        }
    }

    #[test]
    fn versions_are_compared_by_number_and_not_by_letter() {
        assert!(numbers("0.9.2") < numbers("0.12"));
        assert_eq!(numbers("1.0.0rc3"), [1, 0, 0]);
        assert!(numbers("1.0.0rc3") < numbers("1.2.0rc6.post1"));
    }
}
