//! `fulcrum completions SHELL`

use crate::exit::Outcome;
use crate::terminal;
use clap::CommandFactory;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which shell.
    shell: clap_complete::Shell,
}

/// Prints the script to stdout.
pub fn run(arguments: Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "fulcrum", &mut script);
    terminal::print(&script);
    Ok(())
}
