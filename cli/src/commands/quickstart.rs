//! `fulcrum quickstart`

use crate::text::terminal::{self, ProgressDisplay, out};
use crate::text::verdict;
use crate::written::WRITTEN_FOLDER;
use fulcrum::{ProgressEvent, QuickstartOptions, Result};
use hwprofiles::BytesPerSec;
use std::path::PathBuf;

/// Everything at once on this machine: measure, plan, simulate, run, compare, report.
#[derive(Debug, clap::Args)]
pub struct QuickstartArguments {
    /// The folder for what it makes: host.yaml, the model, plans, results.json, report.html.
    #[arg(short, long, default_value = "fulcrum-quickstart", value_hint = WRITTEN_FOLDER)]
    out: PathBuf,
    /// Ten loads, batch 1–16 and prompts of 16–512 tokens, and every rule, instead of four and
    /// three.
    #[arg(long)]
    full: bool,
    /// The rate of the loopback's link. Slow beside memory, as a link to an accelerator is.
    #[arg(long, default_value = "4 GB/s")]
    link: BytesPerSec,
    /// What the loopback's memory holds of the model.
    #[arg(long, value_name = "PERCENT", default_value_t = 40,
        value_parser = clap::value_parser!(u64).range(1..=200))]
    memory: u64,
    /// Measured before (`fulcrum bench`): skips measuring.
    #[arg(long, value_name = "FILE")]
    host: Option<PathBuf>,
    /// Rounds in which every configuration is run once; medians are compared.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
}

impl QuickstartArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { out, full, link, memory, host, repeats } = self;
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let command = format!("cargo run --release -- {command}");
        let date = terminal::today();
        let page = out.join("report.html");
        let options =
            QuickstartOptions { out, full, link, memory_percent: memory, host, repeats, date, command };
        let display = ProgressDisplay::default();
        let work = || fulcrum::quickstart(&options, &|event: ProgressEvent<'_>| display.show(event));
        let (validation, others) = fulcrum::beside_other_programs(work);
        let validation = validation?;
        match json {
            true => out!("{}", validation.to_json()),
            false => {
                out!("{}", validation.to_text());
                out!("\n{}", verdict::quickstart(&validation, others, &page));
            }
        }
        Ok(())
    }
}
