//! What can go wrong with a report.

use crate::results::comparison::JoinError;
use hwprofiles::WriteError;
use std::path::PathBuf;

/// The files that reports are made of, for messages.
pub const RESULTS: &str = "validations (`fulcrum validate`), plans, grids and fronts (`fulcrum plan`), traces and serving \
    results (`fulcrum sim`, `fulcrum run`), sweeps (`fulcrum sweep`) and capacities (`fulcrum capacity --json`)";

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A plot that cannot be written as a PNG.
    #[error("{}: the plot cannot be written as a PNG: {reason}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Two traces that cannot be compared.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A configuration whose traces cannot be compared.
    #[error("configuration '{name}': {source}")]
    Configuration {
        /// The name of the configuration.
        name: String,
        /// The reason.
        source: JoinError,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file that does not have the form of a result.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The place in the file and the reason.
        source: serde_json::Error,
    },
    /// A result of an unknown kind or version.
    #[error("{}: {key} is {value}; this version reads {wanted}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The key with the unknown value.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that this version reads.
        wanted: String,
    },
    /// A file that is not a table.
    #[error("{}: {reason}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The reason, and what would be right.
        reason: String,
    },
    /// A file whose content is not a result.
    #[error("{}: is {content}; a report is made of {}", path.display(), RESULTS)]
    NoResult {
        /// The file.
        path: PathBuf,
        /// What the file contains.
        content: String,
    },
    /// A document that cannot be read.
    #[error(transparent)]
    Document(#[from] hwprofiles::FileError),
    /// A trace that cannot be read.
    #[error(transparent)]
    Trace(#[from] planner::TraceFileError),
    /// A file that cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A mistake in a template of this crate.
    #[error("the page cannot be made: {0}")]
    Page(#[from] minijinja::Error),
}
