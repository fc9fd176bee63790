//! A plan as an engine's options.

use crate::placement::Placement;

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
