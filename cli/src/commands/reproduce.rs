//! `fulcrum reproduce [ID]…`

use crate::exit::{Outcome, Sort};
use crate::reproduce::{Published, fitted};
use crate::terminal::{out, outln};
use reports::published::Reproductions;
use std::path::PathBuf;

/// Predict what others published: each row of each system beside what we say, and how far it is off.
///
/// Without an id, every system. Rows whose setup was published in full (certainty table or repo-log) are scored, apart
/// from those that an engine's constants were fitted on.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Systems, by id: `flexgen`.
    ids: Vec<String>,
    /// A publication of yours: a YAML file with its rows in the CSV file of the same name.
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    file: Option<PathBuf>,
    /// Print every row, also where several systems are asked for.
    #[arg(long)]
    rows: bool,
    /// Write `published.md` with a plot for each system into --out.
    #[arg(long)]
    report: bool,
    /// The folder of the report.
    #[arg(long, value_name = "FOLDER", default_value = "published", requires = "report")]
    out: PathBuf,
    /// Write every row with our prediction to a CSV file.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Fit the constants again, on the rows that the system names for it, and print them.
    #[arg(long, conflicts_with_all = ["report", "table"])]
    fit: bool,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let all = match &arguments.file {
        Some(path) => vec![Published::file(path)?],
        None => Published::shipped(&arguments.ids)?,
    };
    if arguments.fit {
        return all
            .iter()
            .filter(|it| it.publication.constants.0.iter().any(|(_, c)| c.fitted))
            .try_for_each(fit);
    }
    let reproductions = Reproductions(all.iter().map(Published::reproduction).collect());
    if let Some(path) = &arguments.table {
        hwprofiles::write_atomically(path, reproductions.to_csv()).or_failed()?;
    }
    if arguments.report {
        reproductions.write(&arguments.out).or_failed()?;
    }
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&reproductions.to_json()).or_failed()?),
        false => out!("{}", reproductions.to_text(arguments.rows || all.len() == 1)),
    }
    Ok(())
}

fn fit(published: &Published) -> Outcome {
    let (publication, loss) = fitted(published)?;
    outln!("{}: mean |ln(ours ÷ published)| {loss:.4} on the rows fitted", published.id);
    for (name, constant) in publication.constants.0.iter().filter(|(_, constant)| constant.fitted) {
        outln!("  {name}: {:.4}", constant.value);
    }
    Ok(())
}
