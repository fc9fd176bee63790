//! `fulcrum schema`

use crate::text::terminal::{out, out_json};
use fulcrum::Result;

/// Print the JSON Schema of scenario files, or of machine files, with which editors complete and
/// check keys.
///
/// In an editor with YAML's language server, a file's first line can name its schema: `#
/// yaml-language-server: $schema=scenario.schema.json`
#[derive(Debug, clap::Args)]
pub struct SchemaArguments {
    /// The files: scenarios, or machines and their parts.
    #[arg(value_enum, default_value_t)]
    of: Files,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Files {
    /// Scenarios.
    #[default]
    Scenario,
    /// Machines, and their parts.
    Machine,
}

impl SchemaArguments {
    /// Runs the command.
    pub fn run(self) -> Result {
        match self.of {
            Files::Scenario => out_json!(&scenarios::scenario_schema()),
            Files::Machine => out!("{}", hwprofiles::machine_schema()),
        }
        Ok(())
    }
}
