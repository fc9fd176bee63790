//! `fulcrum validate PLAN... --model-dir DIR`

use crate::text::terminal::{ProgressDisplay, out};
use crate::written::WRITTEN_FILE;
use fulcrum::{OrError, ProgressEvent, Result, ValidationOptions};
use std::path::PathBuf;

/// Run plans for real and compare with what the simulator predicted.
#[derive(Debug, clap::Args)]
pub struct ValidateArguments {
    /// The plans, all for one machine and one model.
    #[arg(required = true)]
    plans: Vec<PathBuf>,
    /// The model's folder.
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
    /// Runs of each plan; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Where to write the results; `fulcrum report` makes a page of them.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
    /// Go on behind the plans that an earlier run has measured and kept beside the file of -o.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Run plans for another machine too.
    #[arg(long)]
    anyway: bool,
    /// Write the page at once.
    #[arg(long, value_name = "FILE", value_hint = WRITTEN_FILE)]
    html: Option<PathBuf>,
}

impl ValidateArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { plans, model_dir, repeats, out, resume, anyway, html } = self;
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let options = ValidationOptions { plans, model_dir, repeats, out, resume, anyway, command };
        let display = ProgressDisplay::default();
        let validation = fulcrum::validate(&options, &|event: ProgressEvent<'_>| display.show(event))?;
        if let Some(path) = &html {
            validation.write_html(path).or_failed()?;
        }
        match json {
            true => out!("{}", validation.to_json()),
            false => out!("{}", validation.to_text()),
        }
        Ok(())
    }
}
