//! `fulcrum capacity SCENARIO`

use crate::capacity;
use crate::exit::{Failure, Outcome, Sort};
use crate::terminal::out;
use anyhow::anyhow;
use hwprofiles::write_atomically;
use scenarios::{Document, Setting};
use std::path::PathBuf;

/// Say which machine serves a load within its limits, how many of them, and what that costs.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The scenario's file: requests that come and go, limits, and under `capacity` the machines that may be bought.
    scenario: PathBuf,
    /// Set a key of the scenario by its dotted path.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// Also write the answer: a name that ends in .md, .csv, .json or .html.
    #[arg(short, long)]
    out: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    const ENDINGS: [&str; 4] = ["md", "csv", "json", "html"];
    let ending = arguments.out.as_deref().map(|path| {
        let found = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        let known = found.and_then(|found| ENDINGS.into_iter().find(|ending| *ending == found));
        let wrong =
            || anyhow!("-o {}: a name that ends in .md, .csv, .json or .html is wanted", path.display());
        Ok::<_, anyhow::Error>((path, known.ok_or_else(wrong)?))
    });
    let ending = ending.transpose().map_err(Failure::Input)?;
    let document =
        Document::from_file(&arguments.scenario).or_input()?.with(&arguments.settings).or_input()?;
    let report = capacity::run(&document)?;
    if let Some((path, ending)) = ending {
        let text = match ending {
            "md" => report.to_markdown(),
            "csv" => report.to_csv(),
            "json" => report.to_json(),
            _ => report.to_html().or_failed()?,
        };
        write_atomically(path, text).or_failed()?;
    }
    match json {
        true => out!("{}", report.to_json()),
        false => out!("{}", report.to_text()),
    }
    Ok(())
}
