//! Published systems, reproduced: each row's run, priced by the simulator, beside what was published.

mod case;
mod described;
mod fit;
mod place;
mod testbed;
mod whole;

pub use fit::fitted;

use crate::exit::{Outcome, Sort};
use anyhow::{Context, anyhow};
use case::Case;
use rayon::prelude::*;
use reports::published::{Constant, Reproduced, Reproduction, Standing};
use scenarios::published::{Group, Publication, PublishedRow, Resources, Scope, read_rows};
use std::collections::BTreeMap;

/// Id, description and rows of every publication that comes with the program, by id.
const SHIPPED: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/published.rs"));

/// A publication with its rows.
#[derive(Debug, Clone)]
pub struct Published {
    pub id: String,
    pub publication: Publication,
    pub rows: Vec<PublishedRow>,
}

impl Published {
    /// The shipped ones of these ids, or all.
    pub fn shipped(ids: &[String]) -> Outcome<Vec<Self>> {
        if let Some(id) = ids.iter().find(|id| !SHIPPED.iter().any(|(known, ..)| known == id)) {
            let known: Vec<_> = SHIPPED.iter().map(|(known, ..)| *known).collect();
            return Err(anyhow!("there is no publication '{id}': use one of {}", known.join(", ")))
                .or_input();
        }
        let chosen =
            SHIPPED.iter().filter(|(id, ..)| ids.is_empty() || ids.iter().any(|wanted| wanted == id));
        chosen.map(|(id, text, table)| Self::read(id, text, table)).collect()
    }

    /// That of a file, whose rows are in the `.csv` of the same name.
    pub fn file(path: &std::path::Path) -> Outcome<Self> {
        let read = |path: &std::path::Path| {
            std::fs::read_to_string(path).with_context(|| path.display().to_string()).or_input()
        };
        let id = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::read(&id, &read(path)?, &read(&path.with_extension("csv"))?)
    }

    fn read(id: &str, text: &str, table: &str) -> Outcome<Self> {
        Ok(Self {
            id: id.to_owned(),
            publication: Publication::from_yaml(text, &format!("{id}.yaml")).or_input()?,
            rows: read_rows(table, &format!("{id}.csv")).or_input()?,
        })
    }

    /// Every row beside what we say.
    pub fn reproduction(&self) -> Reproduction {
        let publication = &self.publication;
        let constant = |(name, constant): &(String, scenarios::published::Constant)| Constant {
            name: name.clone(),
            value: constant.value,
            prior: constant.prior,
            why: constant.why.clone(),
            fitted: constant.fitted,
        };
        Reproduction {
            id: self.id.clone(),
            system: publication.system.clone(),
            source: publication.source.clone(),
            licence: publication.licence.clone(),
            wanted: match publication.resources {
                Resources::One => Some(0.15),
                Resources::Two => Some(0.25),
                Resources::None => None,
            },
            mechanism: publication.mechanism.clone(),
            verdict: publication.verdict.clone(),
            constants: publication.constants.0.iter().map(constant).collect(),
            rows: self.rows.par_iter().map(|row| self.reproduced(row)).collect(),
        }
    }

    fn reproduced(&self, row: &PublishedRow) -> Reproduced {
        let publication = &self.publication;
        let group = publication.group_of(row);
        let mut standing = match publication.why_unscored(row) {
            // What is said of rows at large is not said of those that a group reproduces.
            Some(why) if group.is_none() => Standing::Unscored(why.to_owned()),
            _ if publication.is_fitted_on(row) => Standing::Fitted,
            _ if !row.is_full() => {
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
                match ours(publication, group, numbers, row, publication.scope()) {
                    Ok(ours) => Some(ours),
                    Err(reason) => {
                        standing = Standing::Failed(format!("{:#}", reason.error()));
                        None
                    }
                }
            }
        };
        let cell = |column: &str| row.cells.get(column).cloned().unwrap_or_default();
        let table = group.and_then(|(group, _)| group.table.clone()).unwrap_or_else(|| row.metric.clone());
        let what = ["model", "batch", "input_len", "output_len", "precision", "baseline"].map(cell);
        let what: Vec<_> = what.into_iter().filter(|cell| !cell.is_empty()).collect();
        Reproduced {
            id: row.id.clone(),
            hardware: cell("hardware"),
            what: what.join(", "),
            table,
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            certainty: row.certainty.clone(),
            published: row.value,
            ours,
            standing,
        }
    }
}

fn with_article(certainty: &str) -> String {
    let article = if certainty.starts_with('a') { "an" } else { "a" };
    match certainty {
        "secondary" => "a secondary source".to_owned(),
        other => format!("{article} {other}"),
    }
}

/// What we say to a row, where `scope` knows the constants.
fn ours(
    publication: &Publication,
    group: &Group,
    numbers: &BTreeMap<String, f64>,
    row: &PublishedRow,
    mut scope: Scope,
) -> Outcome<f64> {
    scope.set_row(row);
    let read = numbers.iter().map(|(name, number)| (name.as_str(), *number));
    for (name, number) in publication.numbers_by(row).into_iter().chain(read) {
        scope.set(name, number);
    }
    for (name, text) in &group.texts {
        scope.set_text(name, text);
    }
    let text = |reason: String| anyhow!(reason);
    for (name, expression) in &group.numbers.0 {
        let number = scope.value(expression).map_err(text).or_input()?;
        scope.set(name, number);
    }
    for (name, expression) in &publication.numbers.0 {
        // What only other groups' numbers make known is not known here, and an error only where it is asked for.
        if let Ok(number) = scope.value(expression) {
            scope.set(name, number);
        }
    }
    let model = row.cells.get("model").map_or("", String::as_str);
    for (name, template) in publication.runs_of(group).map_err(text).or_input()? {
        let results = Case { publication, scope: &scope, model }.run(template)?;
        for (result, number) in results {
            match name {
                "run" => scope.set(&result, number),
                name => scope.set(&format!("{name}.{result}"), number),
            }
        }
    }
    let ours = publication.ours_of(group, row).map_err(text).or_input()?;
    scope.value(ours).map_err(text).or_input()
}
