//! The errors of this crate.

use hwprofiles::ProfileError;
use std::path::PathBuf;

/// An error in a model, a scenario or a sweep. It names the place (file and line, or `--set`), the
/// key, the value, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file could not be read.
    #[error("{}: cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: std::io::Error,
    },
    /// A text is not JSON or YAML.
    #[error("{place}: {reason}")]
    Syntax {
        /// File, and line where known.
        place: String,
        /// The parser's message.
        reason: String,
    },
    /// A value has the wrong type or lies outside its range.
    #[error("{place}: {key} is {value}: {wanted}")]
    Value {
        /// File, and line where known.
        place: String,
        /// The key, as a dotted path.
        key: String,
        /// The value that was written, as JSON.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A required key is absent.
    #[error("{place}: {key} is missing: {wanted}")]
    Missing {
        /// File, and line where known.
        place: String,
        /// The key, as a dotted path.
        key: String,
        /// What would be right.
        wanted: String,
    },
    /// An unknown key.
    #[error("{place}: unknown key {key}: {meant}the keys known here are {known}")]
    UnknownKey {
        /// File, and line where known.
        place: String,
        /// The key, as a dotted path.
        key: String,
        /// The question whether the nearest known key is meant; empty if none is near.
        meant: String,
        /// The known keys, comma-separated.
        known: String,
    },
    /// A valid value that this version does not support.
    #[error("{place}: {key} is {value}: {reason}")]
    Unsupported {
        /// File, and line where known.
        place: String,
        /// The key, as a dotted path.
        key: String,
        /// The value that was written, as JSON.
        value: String,
        /// What is not supported, and what is supported instead.
        reason: String,
    },
    /// The scenario is wrong on one of the machines of `capacity.machines`.
    #[error("{place}: on {name}: {error}")]
    Within {
        /// File and line of the machine's entry.
        place: String,
        /// The machine's name.
        name: String,
        /// The error.
        error: Box<ScenarioError>,
    },
    /// A wrong table of requests.
    #[error(transparent)]
    Trace(RequestTraceError),
    /// A machine that cannot be found or composed.
    #[error(transparent)]
    Machine(ProfileError),
    /// A model name that is neither a preset nor a path.
    #[error(
        "{name} is not a model: a preset, a folder with a config.json, a config.json or a GGUF file is wanted; {known}"
    )]
    UnknownPreset {
        /// The text that was written.
        name: String,
        /// The nearest preset's name, or the names of all.
        known: String,
    },
    /// A setting of the command line that does not have the form `key=value`, or that has no place
    /// in the document.
    #[error("--set {text}: {reason}")]
    Setting {
        /// The text that was written.
        text: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// Keys of a sweep that cannot change together.
    #[error("--zip {text}: {reason}")]
    Zip {
        /// The text that was written.
        text: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A grid with more scenarios than are allowed.
    #[error(
        "the sweep has {count} scenarios ({axes}): at most {limit} are allowed, leave out some values, or `fulcrum sweep --budget` draws some of them"
    )]
    GridTooLarge {
        /// Scenarios in the grid.
        count: u128,
        /// The keys, each with its number of values.
        axes: String,
        /// The largest allowed number.
        limit: u64,
    },
}

/// A wrong table of requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct RequestTraceError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// What is wrong, and what would be right.
    pub reason: String,
}
