//! `fulcrum completions SHELL`

use crate::text::terminal;
use clap::CommandFactory;
use fulcrum::Result;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArguments {
    /// Which shell.
    shell: clap_complete::Shell,
}

impl CompletionsArguments {
    /// Runs the command.
    pub fn run(self) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Arguments::command(), "fulcrum", &mut script);
        terminal::print(&script);
        Ok(())
    }
}
