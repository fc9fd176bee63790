//! `fulcrum merge TABLE…`

use crate::text::terminal::outln;
use crate::written::WRITTEN_FILE;
use fulcrum::Result;
use serde_json::json;
use std::path::PathBuf;

/// Join the tables of a sweep's shards into the table of the whole sweep.
#[derive(Debug, clap::Args)]
pub struct MergeArguments {
    /// The tables, of all shards, in any order.
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Where to write the whole table.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: PathBuf,
}

impl MergeArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let points = fulcrum::merge_shards(&self.tables, &self.out)?;
        match json {
            true => outln!("{}", json!({ "points": points })),
            false => outln!("{points} points: written to {}", self.out.display()),
        }
        Ok(())
    }
}
