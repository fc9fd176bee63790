//! `fulcrum report RESULT… -o report.html`

use crate::text::terminal::{errln, outln};
use crate::written::{WRITTEN_FILE, WRITTEN_FOLDER, check_ending};
use fulcrum::{OrError, Result, ResultPage};
use serde_json::json;
use std::path::PathBuf;

/// Make a page of results of any kinds: validations, plans, grids, fronts, traces, served requests,
/// sweeps, capacities.
#[derive(Debug, clap::Args)]
pub struct ReportArguments {
    /// What `fulcrum validate`, `plan`, `sim`, `run`, `sweep` or `capacity` wrote; each file says
    /// what it is.
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// The page, one file that needs no network.
    #[arg(short, long, default_value = "report.html", value_hint = WRITTEN_FILE)]
    out: PathBuf,
    /// Also write each plot as a file into this folder.
    #[arg(long, value_name = "DIR", value_hint = WRITTEN_FOLDER)]
    plots: Option<PathBuf>,
    /// As what.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "svg", requires = "plots")]
    format: Vec<PlotFormat>,
}

/// The format of a plot's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PlotFormat {
    /// A drawing, in the colours of the reader's screen.
    Svg,
    /// A picture of pixels, in light colours.
    Png,
}

impl ReportArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        check_ending(&self.out, &[".html", ".htm"])?;
        let ResultPage { report, files } = fulcrum::report(&self.results)?;
        report.write_html(&self.out).or_failed()?;
        if let Some(folder) = &self.plots {
            for format in &self.format {
                match format {
                    PlotFormat::Svg => report.write_plots(folder).or_failed()?,
                    PlotFormat::Png => report.write_pictures(folder).or_failed()?,
                }
            }
        }
        if self.plots.is_some() && report.plots().is_empty() {
            errln!("warning: --plots: no plot can be drawn of these results, the page has their tables");
        }
        let files: Vec<_> = files
            .iter()
            .map(|file| json!({"file": file.path, "kind": file.kind.description(), "sha256": file.sha256}))
            .collect();
        match json {
            true => outln!("{}", json!({"page": self.out, "files": files})),
            false => outln!("written to {}", self.out.display()),
        }
        Ok(())
    }
}
