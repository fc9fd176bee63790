//! `fulcrum report RESULT -o report.html`

use crate::exit::{Outcome, Sort};
use crate::terminal::{out, outln};
use reports::Validation;
use std::path::PathBuf;

/// Make a page of the results of a validation.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What `fulcrum validate` or `fulcrum quickstart` wrote.
    results: PathBuf,
    /// The page, one file that needs no network.
    #[arg(short, long, default_value = "report.html")]
    out: PathBuf,
    /// Also write each plot as an SVG file into this folder.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let validation = Validation::read(&arguments.results).or_input()?;
    validation.write_html(&arguments.out).or_failed()?;
    if let Some(folder) = &arguments.plots {
        validation.write_plots(folder).or_failed()?;
    }
    match json {
        true => out!("{}", validation.to_json()),
        false => outln!("written to {}", arguments.out.display()),
    }
    Ok(())
}
