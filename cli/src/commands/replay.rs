//! `fulcrum replay FOLDER`

use crate::text::terminal::{out, out_json};
use crate::written::WRITTEN_FILE;
use fulcrum::{ReplayOptions, Result, Setting};
use std::path::PathBuf;

/// Serve a recorded run of a real engine again, and show how far each request is off.
///
/// FOLDER holds the engine's settings (engine.yaml), the requests with their times (requests.csv)
/// and the GPU's layer times: dense_tpN.csv, per_sequence_tpN.csv, attention_tpN.csv, moe_tpN.csv
/// and all_reduce_tpN.csv for N GPUs that share a layer. These price the steps. With --machine or
/// --scenario the machine's profile alone prices them, and layer times, where they are there, show
/// where the two differ.
#[derive(Debug, clap::Args)]
pub struct ReplayArguments {
    /// The folder of the recorded run.
    folder: PathBuf,
    /// Price the steps by this machine's profile: a shipped name or a file.
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// A scenario with the machine, the model and the formats.
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    /// Set a key of the scenario by its dotted path.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "scenario")]
    settings: Vec<Setting>,
    /// Write a table of the requests, as recorded and as replayed; Parquet where the name ends so.
    #[arg(short, long, value_name = "FILE", value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
}

impl ReplayArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { folder, machine, scenario, settings, out } = self;
        let replay = fulcrum::replay(&ReplayOptions { folder, machine, scenario, settings })?;
        if let Some(path) = &out {
            replay.write_requests(path)?;
        }
        match json {
            true => out_json!(&replay.to_json()),
            false => out!("{replay}"),
        }
        Ok(())
    }
}
