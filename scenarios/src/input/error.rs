//! What can be wrong with a model, a scenario or a sweep.

use std::path::PathBuf;

/// Says where (file and line, or `--set`), which key, which value, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file could not be read.
    #[error("{}: cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A text is not JSON or YAML at all.
    #[error("{place}: {reason}")]
    Syntax {
        /// File, and line where known.
        place: String,
        /// What the parser says.
        reason: String,
    },
    /// A value has the wrong type or lies outside its range.
    #[error("{place}: {key} is {value}: {wanted}")]
    Value {
        /// File, and line where known.
        place: String,
        /// Dotted path.
        key: String,
        /// What was written, as JSON.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A key is absent that must be there.
    #[error("{place}: {key} is missing: {wanted}")]
    Missing {
        /// File, and line where known.
        place: String,
        /// Dotted path.
        key: String,
        /// What would be right.
        wanted: String,
    },
    /// A key that nobody reads.
    #[error("{place}: unknown key {key}: the keys known here are {known}")]
    UnknownKey {
        /// File, and line where known.
        place: String,
        /// Dotted path.
        key: String,
        /// The keys that are read, comma-separated.
        known: String,
    },
    /// Understood, and not possible in this version.
    #[error("{place}: {key} is {value}: {reason}")]
    Unsupported {
        /// File, and line where known.
        place: String,
        /// Dotted path.
        key: String,
        /// What was written, as JSON.
        value: String,
        /// What it asks for, and what is supported instead.
        reason: String,
    },
    /// Something is wrong with the scenario on one of the machines that it asks about.
    #[error("{place}: on {name}: {error}")]
    Within {
        /// File and line of the machine.
        place: String,
        /// What the machine is called.
        name: String,
        /// What is wrong.
        error: Box<ScenarioError>,
    },
    /// A table of requests that is not one.
    #[error(transparent)]
    Trace(crate::load::request_trace::TraceError),
    /// A model name that is no preset and no path.
    #[error(
        "{name} is not a model: use a folder with a config.json, the path of a config.json or of a GGUF file, or one of {known}"
    )]
    UnknownPreset {
        /// What was written.
        name: String,
        /// The presets.
        known: String,
    },
    /// A setting of the command line that does not have the form `key=value`, or cannot be put in its place.
    #[error("--set {text}: {reason}")]
    Setting {
        /// What was written.
        text: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// Keys that cannot change together.
    #[error("--zip {text}: {reason}")]
    Zip {
        /// What was written.
        text: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A grid beyond its limit.
    #[error(
        "the sweep has {count} scenarios ({axes}): at most {limit} are allowed, leave out some values, or `fulcrum sweep --budget` draws some of them"
    )]
    GridTooLarge {
        /// Scenarios in it.
        count: u128,
        /// Keys with their number of values.
        axes: String,
        /// How many may be.
        limit: u64,
    },
}
