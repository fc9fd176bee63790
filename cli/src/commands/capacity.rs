//! `fulcrum capacity SCENARIO`

use crate::text::terminal::out;
use crate::written::WRITTEN_FILE;
use fulcrum::{Document, Error, OrError, Result, Setting};
use hwprofiles::write_atomically;
use std::path::{Path, PathBuf};

/// Say which machine serves a load within its limits, how many of them, and what that costs.
#[derive(Debug, clap::Args)]
pub struct CapacityArguments {
    /// The scenario's file: requests that come and go, limits, and under `capacity` the machines
    /// that may be bought.
    scenario: PathBuf,
    /// Set a key of the scenario by its dotted path.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// Also write the answer: a name that ends in .md, .csv, .json or .html.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy)]
enum ReportFormat {
    Markdown,
    Csv,
    Json,
    Html,
}

impl ReportFormat {
    /// The format that the ending of a file's name stands for.
    fn from_path(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("md") => Ok(Self::Markdown),
            Some("csv") => Ok(Self::Csv),
            Some("json") => Ok(Self::Json),
            Some("html") => Ok(Self::Html),
            _ => Err(Error::input(format!(
                "-o {}: a name that ends in .md, .csv, .json or .html is wanted",
                path.display()
            ))),
        }
    }
}

impl CapacityArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let format = self.out.as_deref().map(ReportFormat::from_path).transpose()?;
        let document =
            Document::from_file(&self.scenario).or_input()?.with_settings(&self.settings).or_input()?;
        let report = fulcrum::capacity(&document)?;
        if let (Some(path), Some(format)) = (&self.out, format) {
            let text = match format {
                ReportFormat::Markdown => report.to_markdown(),
                ReportFormat::Csv => report.to_csv(),
                ReportFormat::Json => report.to_json(),
                ReportFormat::Html => report.to_html().or_failed()?,
            };
            write_atomically(path, text).or_failed()?;
        }
        match json {
            true => out!("{}", report.to_json()),
            false => out!("{}", report.to_text()),
        }
        Ok(())
    }
}
