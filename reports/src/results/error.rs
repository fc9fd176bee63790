//! What can go wrong with a report.

use crate::results::comparison::JoinError;
use hwprofiles::WriteError;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A plot that cannot be written as a PNG.
    #[error("{}: the plot cannot be written as a PNG: {reason}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Two traces that cannot be compared.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A configuration whose traces cannot be compared.
    #[error("configuration '{name}': {source}")]
    Configuration {
        /// Which.
        name: String,
        /// Why not.
        source: JoinError,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is not a result.
    #[error("{}: {source}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Where in it, and why not.
        source: serde_json::Error,
    },
    /// A result of another kind or version.
    #[error("{}: {key} is {value}; this version reads {wanted}", path.display())]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// `kind` or `version`.
        key: &'static str,
        /// What stands there.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A file that is no table.
    #[error("{}: {reason}", path.display())]
    Table {
        /// Which file.
        path: PathBuf,
        /// Why not, and what would be right.
        reason: String,
    },
    /// A file that holds something else than a result.
    #[error("{}: is {content}; a report is made of {}", path.display(), crate::results::result_file::RESULTS)]
    NoResult {
        /// Which file.
        path: PathBuf,
        /// What it is.
        content: String,
    },
    /// A document that is not what it says it is.
    #[error(transparent)]
    Document(#[from] hwprofiles::FileError),
    /// A trace that is none.
    #[error(transparent)]
    Trace(#[from] planner::TraceError),
    /// A file that cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A mistake in a template of ours.
    #[error("the page cannot be made: {0}")]
    Page(#[from] minijinja::Error),
}
