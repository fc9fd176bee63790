//! What can go wrong between a file and a machine.

use crate::files::yaml::FileError;
use std::path::PathBuf;

/// A profile that cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file cannot be read at all.
    #[error("{}: cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A file says something wrong.
    #[error(transparent)]
    Wrong(#[from] FileError),
    /// The name is neither a shipped profile nor a file.
    #[error("'{name}' is neither a file nor a shipped profile; {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Shipped names that begin like it, or how to list them.
        known: String,
    },
    /// A link that begins with a number and is neither a shipped profile nor a rate.
    #[error("'{name}' is no link's rate: `120 GB/s` is one, or with its latency `120 GB/s, 1 us`")]
    LinkRate {
        /// What was said.
        name: String,
    },
    /// CXL memory that begins with a number, and is no shipped profile and no size with a rate.
    #[error(
        "'{name}' is no CXL memory: `1 TB, 200 GB/s` is some, or with its latency `1 TB, 200 GB/s, 300 ns`"
    )]
    CxlMemory {
        /// What was said.
        name: String,
    },
    /// A machine in words that is not clear.
    #[error(
        "the machine is not clear\n  understood: {}\n  {}\n  a whole line: \"RTX 4090, i7-14700K, 64 GB DDR5-6000, PCIe 4.0 x16\"",
        if understood.is_empty() { "nothing".to_owned() } else { understood.join(", ") },
        wrong.join("\n  ")
    )]
    Unclear {
        /// What was understood.
        understood: Vec<String>,
        /// What is wrong or missing, each with what would be right.
        wrong: Vec<String>,
    },
    /// `this` machine was not measured.
    #[error("'this' is what `fulcrum bench` wrote last, and it has not written anything yet: run it first")]
    Unmeasured,
    /// The profile is of another kind than wanted.
    #[error("{name}: this is {found}, but {wanted} is wanted here")]
    WrongKind {
        /// The file or shipped name.
        name: String,
        /// "a machine", "a GPU", …
        found: &'static str,
        /// The same, wanted.
        wanted: &'static str,
    },
    /// The parts do not make a machine.
    #[error("{part}: {message}")]
    Unfit {
        /// The part: `loopback.memory`, `gpu`, …
        part: String,
        /// What is wrong and what would be right.
        message: String,
    },
}
