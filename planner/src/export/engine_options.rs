//! A plan as an engine's options.

use crate::placement::Placement;
use std::fmt;

/// A plan as an engine's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Files that the command reads: name and text.
    pub files: Vec<(String, String)>,
    /// The command line that starts the engine.
    pub command: String,
    /// What the engine cannot express, one sentence each; empty where it runs the plan as it is.
    pub cannot: Vec<String>,
    /// The placement that the engine makes of these options on the plan's machine.
    pub nearest: Placement,
}

/// The command, and the files that it reads, each under its name.
impl fmt::Display for Export {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(text, "{}", self.command)?;
        self.files.iter().try_for_each(|(name, file)| write!(text, "\n--- {name}\n{file}"))
    }
}
