//! `fulcrum reproduce [ID]…`

use crate::text::terminal::{out, out_json, outln};
use crate::written::{WRITTEN_FILE, WRITTEN_FOLDER};
use fulcrum::{OrError, Published, Result, fit_constants, reproduce_public, reproduce_public_left_out};
use hwprofiles::write_atomically;
use reports::published::Reproductions;
use std::path::PathBuf;

/// Predict what others published: each row of each system beside what we say, and how far it is
/// off.
///
/// Without an id, every system. Rows whose setup was published in full (certainty table or
/// repo-log) are scored, apart from those that an engine's constants were fitted on.
#[derive(Debug, clap::Args)]
pub struct ReproduceArguments {
    /// Systems, by id: `flexgen`.
    ids: Vec<String>,
    /// A publication of yours: a YAML file with its rows in the CSV file of the same name.
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    file: Option<PathBuf>,
    /// Public runs of engines on machines of shipped parts instead, with nothing fitted to a row:
    /// errors by engine, machine, model, format and placement.
    #[arg(long, conflicts_with_all = ["ids", "file", "fit"])]
    public: bool,
    /// Predict each CPU's runs also with constants that are chosen on those of the others. Takes
    /// minutes.
    #[arg(long, requires = "public")]
    leave_out: bool,
    /// Print every row, also where several systems are asked for.
    #[arg(long)]
    rows: bool,
    /// Write `published.md` with a plot for each system into --out; with --public `public.md` and
    /// `public.json`.
    #[arg(long)]
    report: bool,
    /// The folder of the report.
    #[arg(long, value_name = "FOLDER", default_value = "published", requires = "report", value_hint = WRITTEN_FOLDER)]
    out: PathBuf,
    /// Write every row with our prediction to a CSV file.
    #[arg(long, value_name = "FILE", value_hint = WRITTEN_FILE)]
    table: Option<PathBuf>,
    /// Fit the constants again, on the rows that the system names for it, print them, and say which
    /// differ from the stored ones.
    #[arg(long, conflicts_with_all = ["report", "table"])]
    fit: bool,
}

impl ReproduceArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        if self.public {
            return self.public_runs(json);
        }
        let all = match &self.file {
            Some(path) => vec![Published::read(path)?],
            None => Published::shipped(&self.ids)?,
        };
        if self.fit {
            let is_fitted = |it: &&Published| it.publication.constants.0.iter().any(|(_, c)| c.fitted);
            return all.iter().filter(is_fitted).try_for_each(fit);
        }
        let reproductions = Reproductions(all.iter().map(Published::reproduction).collect());
        if let Some(path) = &self.table {
            write_atomically(path, reproductions.to_csv()).or_failed()?;
        }
        if self.report {
            reproductions.write(&self.out).or_failed()?;
        }
        match json {
            true => out_json!(&reproductions.to_json()),
            false => out!("{}", reproductions.to_text(self.rows || all.len() == 1)),
        }
        Ok(())
    }

    /// Predicts the public runs.
    fn public_runs(&self, json: bool) -> Result {
        let rows = reproduce_public()?;
        let left_out = self.leave_out.then(reproduce_public_left_out).transpose()?;
        if let Some(path) = &self.table {
            write_atomically(path, rows.to_csv()).or_failed()?;
        }
        if self.report {
            rows.write(&self.out, left_out.as_ref()).or_failed()?;
        }
        match json {
            true => out_json!(&rows.to_json(left_out.as_ref())),
            false => {
                out!("{}", rows.to_text(self.rows));
                out!("{}", left_out.map_or_else(String::new, |it| it.to_text()));
            }
        }
        Ok(())
    }
}

/// A fitted constant differs from the stored one beyond what the search resolves.
const DIFFERENT: f64 = 0.02;

/// Fits a publication's constants and prints them beside the stored ones.
fn fit(published: &Published) -> Result {
    let (publication, loss) = fit_constants(published)?;
    outln!("{}: mean |ln(ours ÷ published)| {loss:.4} on the rows fitted", published.id);
    let both = publication.constants.0.iter().zip(&published.publication.constants.0);
    for ((name, constant), (_, stored)) in both.filter(|((_, constant), _)| constant.fitted) {
        let change = (constant.value - stored.value) / stored.value;
        let differs = match change.abs() > DIFFERENT {
            true => format!("  differs from the stored {} by {:+.1} %", stored.value, 100.0 * change),
            false => String::new(),
        };
        outln!("  {name}: {:.4}{differs}", constant.value);
    }
    Ok(())
}
