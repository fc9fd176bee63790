//! `fulcrum schema`

use crate::text::terminal::out_json;
use fulcrum::Result;

/// Print the JSON Schema of scenario files, with which editors complete and check keys.
///
/// In an editor with YAML's language server, a scenario's first line can name the file: `#
/// yaml-language-server: $schema=scenario.schema.json`
#[derive(Debug, clap::Args)]
pub struct SchemaArguments {}

impl SchemaArguments {
    /// Runs the command.
    pub fn run(self) -> Result {
        out_json!(&scenarios::scenario_schema());
        Ok(())
    }
}
