//! `fulcrum completions SHELL` and `fulcrum manual FOLDER`: the command for shells and `man`.

use crate::text::terminal::{self, outln};
use clap::CommandFactory;
use fulcrum::{OrError, Result};
use hwprofiles::write_atomically;
use std::path::PathBuf;

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

/// Write the manual pages of all commands into a folder: `man FOLDER/fulcrum.1` shows one.
#[derive(Debug, clap::Args)]
pub struct ManualArguments {
    /// The folder.
    folder: PathBuf,
}

impl ManualArguments {
    /// Runs the command.
    pub fn run(self) -> Result {
        let mut command = crate::Arguments::command().disable_help_subcommand(true);
        command.build();
        let mut pages = vec![(String::from("fulcrum"), command.clone())];
        while let Some((name, command)) = pages.pop() {
            let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
            pages.extend(inner.map(|inner| (format!("{name}-{}", inner.get_name()), inner.clone())));
            let mut page = Vec::new();
            let title = name.replace('-', " ");
            let command = command.bin_name(title).display_name(name.clone());
            clap_mangen::Man::new(command).render(&mut page).or_failed()?;
            write_atomically(self.folder.join(format!("{name}.1")), page).or_failed()?;
        }
        outln!("written to {}", self.folder.display());
        Ok(())
    }
}
