//! Published systems, reproduced: each row's run, priced by the simulator, beside the published
//! number.

mod core_counts;
mod fit;
mod left_out;
mod machine_numbers;
mod policy;
mod public_run;
mod published_run;
mod reached;
mod scenario_run;
mod testbed;

pub use fit::fit_constants;
pub use left_out::reproduce_public_left_out;
pub use public_run::reproduce_public;
pub use reached::{FittedRate, ReachedFit, ReachedFitOptions, fit_reached, is_llama_bench};

use crate::error::{Error, ErrorContext, OrError, Result};
use published_run::PublishedRun;
use rayon::prelude::*;
use reports::published::{EngineConstant, ReproducedRow, Reproduction, Reproductions, Standing};
use scenarios::published::{Publication, PublishedRow, Resources, RowGroup, SHIPPED, Scope, read_rows};
use std::collections::BTreeMap;
use std::path::Path;

/// A publication with its rows.
#[derive(Debug, Clone)]
pub struct Published {
    /// Its name among the shipped ones, or that of its file.
    pub id: String,
    /// The description.
    pub publication: Publication,
    /// What it reports.
    pub rows: Vec<PublishedRow>,
}

/// Predicts what the shipped publications of these ids report, or all of them.
///
/// ```
/// let reproductions = fulcrum::reproduce(&["sn40l".to_owned()])?;
/// assert_eq!(reproductions.0[0].id, "sn40l");
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// There is no publication of that id. A row that cannot be run says why.
pub fn reproduce(ids: &[String]) -> Result<Reproductions> {
    let all = Published::shipped(ids)?;
    Ok(Reproductions(all.iter().map(Published::reproduction).collect()))
}

impl Published {
    /// The shipped publications of these ids, or all of them.
    ///
    /// # Errors
    /// There is no publication of that id.
    pub fn shipped(ids: &[String]) -> Result<Vec<Self>> {
        if let Some(id) = ids.iter().find(|id| !SHIPPED.iter().any(|(known, ..)| known == id)) {
            let known: Vec<_> = SHIPPED.iter().map(|(known, ..)| *known).collect();
            let known = known.join(", ");
            return Err(Error::input(format!("there is no publication '{id}': use one of {known}")));
        }
        let chosen =
            SHIPPED.iter().filter(|(id, ..)| ids.is_empty() || ids.iter().any(|wanted| wanted == id));
        chosen.map(|(id, text, table)| Self::parse(id, text, table)).collect()
    }

    /// The publication of a file, whose rows are in the `.csv` of the same name.
    ///
    /// # Errors
    /// A file cannot be read, or is wrong; the error names file and key.
    pub fn read(path: &Path) -> Result<Self> {
        let read = |path: &Path| hwprofiles::read_text(path).or_input().within(|| path.display().to_string());
        let id = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&id, &read(path)?, &read(&path.with_extension("csv"))?)
    }

    fn parse(id: &str, text: &str, table: &str) -> Result<Self> {
        Ok(Self {
            id: id.to_owned(),
            publication: Publication::from_yaml(text, &format!("{id}.yaml")).or_input()?,
            rows: read_rows(table, &format!("{id}.csv")).or_input()?,
        })
    }

    /// Every row beside our prediction.
    pub fn reproduction(&self) -> Reproduction {
        let publication = &self.publication;
        let constant = |(name, constant): &(String, scenarios::published::Constant)| EngineConstant {
            name: name.clone(),
            value: constant.value,
            prior: constant.prior,
            description: constant.why.clone(),
            fitted: constant.fitted,
        };
        let rows = self.rows.par_iter().map(|row| self.reproduced(row)).collect();
        Reproduction {
            id: self.id.clone(),
            system: publication.system.clone(),
            source: publication.source.clone(),
            licence: publication.licence.clone(),
            two_resources: publication.resources == Resources::Two,
            target_error: match publication.resources {
                Resources::One => Some(0.15),
                Resources::Two => Some(0.25),
                Resources::None => None,
            },
            mechanism: publication.mechanism.clone(),
            verdict: publication.verdict.clone(),
            constants: publication.constants.0.iter().map(constant).collect(),
            rows: core_counts::counted_once(&self.rows, rows),
        }
    }

    fn reproduced(&self, row: &PublishedRow) -> ReproducedRow {
        let publication = &self.publication;
        let group = publication.group_of(row);
        let mut standing = match publication.why_unscored(row) {
            // A reason for many rows does not hold for those that a group reproduces.
            Some(why) if group.is_none() => Standing::Unscored(why.to_owned()),
            _ if publication.is_fitted_on(row) => Standing::Fitted,
            _ if !row.has_full_setup() => {
                Standing::Shown(format!("known from {} only", with_article(&row.certainty)))
            }
            _ => Standing::Scored,
        };
        let ours = match &group {
            None => None,
            Some((group, numbers)) => {
                if let Some(why) = &group.unscored {
                    standing = Standing::Unscored(why.clone());
                }
                match our_value(publication, group, numbers, row, publication.scope()) {
                    Ok(ours) => Some(ours),
                    Err(reason) => {
                        standing = Standing::Failed(reason.to_string());
                        None
                    }
                }
            }
        };
        let simulated = group.as_ref().is_some_and(|(group, _)| is_simulated(publication, group));
        let cell = |column: &str| row.cells.get(column).cloned().unwrap_or_default();
        let table = group.and_then(|(group, _)| group.table.clone()).unwrap_or_else(|| row.metric.clone());
        let description = ["model", "batch", "input_len", "output_len", "precision", "baseline"].map(cell);
        let description: Vec<_> = description.into_iter().filter(|cell| !cell.is_empty()).collect();
        ReproducedRow {
            id: row.id.clone(),
            hardware: cell("hardware"),
            description: description.join(", "),
            table,
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            certainty: row.certainty.clone(),
            published: row.value,
            ours,
            simulated,
            standing,
        }
    }
}

/// Whether a run of a policy, a plan or a scenario answers the rows of `group`, and not only
/// products of a device or numbers of its machine.
fn is_simulated(publication: &Publication, group: &RowGroup) -> bool {
    let runs = publication.runs_of(group).unwrap_or_default();
    runs.iter().any(|(_, template)| template.get("product").is_none() && template.get("describe").is_none())
}

fn with_article(certainty: &str) -> String {
    let article = if certainty.starts_with('a') { "an" } else { "a" };
    match certainty {
        "secondary" => "a secondary source".to_owned(),
        other => format!("{article} {other}"),
    }
}

/// Our prediction of a row, where `scope` knows the constants.
fn our_value(
    publication: &Publication,
    group: &RowGroup,
    numbers: &BTreeMap<String, f64>,
    row: &PublishedRow,
    mut scope: Scope,
) -> Result<f64> {
    scope.set_row(row);
    let read = numbers.iter().map(|(name, number)| (name.as_str(), *number));
    for (name, number) in publication.numbers_from_cells(row).into_iter().chain(read) {
        scope.set(name, number);
    }
    for (name, text) in &group.texts {
        scope.set_text(name, text);
    }
    for (name, expression) in &group.numbers.0 {
        let number = scope.value(expression).or_input()?;
        scope.set(name, number);
    }
    for (name, expression) in &publication.numbers.0 {
        // A number that needs those of another group is unknown here. That is an error only where
        // somebody asks for it.
        if let Ok(number) = scope.value(expression) {
            scope.set(name, number);
        }
    }
    let model = row.cells.get("model").map_or("", String::as_str);
    for (name, template) in publication.runs_of(group).or_input()? {
        let results = PublishedRun { publication, scope: &scope, model }.run(template)?;
        for (result, number) in results {
            match name {
                "run" => scope.set(&result, number),
                name => scope.set(&format!("{name}.{result}"), number),
            }
        }
    }
    let ours = publication.metric_of(group, row).or_input()?;
    scope.value(ours).or_input()
}
