//! The answer: what fits, how fast it is, and which is best for the purpose.

use super::advice_row::{AdviceRow, outcome};
use super::advised_engine::AdvisedEngine;
use super::described_machine::AdvisedMachine;
use super::model_catalog::CataloguedModel;
use super::placing::{EngineSite, NotPlaced};
use super::question::{AdviceQuestion, Purpose};
use super::upgrade::{Upgrade, UpgradePrices, upgrades};
use crate::error::{Error, Result};
use rayon::prelude::*;
use scenarios::Workload;
use serde::Serialize;

/// What a machine can run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The machine's parts, as understood.
    pub parts: Vec<String>,
    /// What is assumed of it.
    pub assumed: Vec<String>,
    /// The engine.
    pub engine: AdvisedEngine,
    /// What it is for.
    pub purpose: Purpose,
    /// The load whose times are told.
    pub load: Workload,
    /// Tokens for which each sequence has room.
    pub context: u64,
    /// The least tokens per second that were asked for, of all sequences together.
    pub min_rate: f64,
    /// What runs, the best first: with one model asked about, each of its formats, and otherwise
    /// the best format of each model.
    pub rows: Vec<AdviceRow>,
    /// What does not run, and why.
    pub left_out: Vec<LeftOutModel>,
    /// What one upgrade brings, where one model is asked about.
    pub upgrades: Vec<Upgrade>,
}

/// A model that does not run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOutModel {
    /// The model.
    pub model: String,
    /// The format that comes nearest.
    pub format: String,
    /// Why.
    pub reason: String,
}

/// Says what `machine` can run: models and formats, each placed as the engine can, ranked by what
/// the question wants.
///
/// # Errors
/// [`Error::Input`] where the engine cannot run there or cannot run the one model that is asked
/// about, or where the model or the format is unknown. A model that does not fit is an answer: it
/// is left out.
pub fn advise(machine: &AdvisedMachine, question: &AdviceQuestion, prices: &UpgradePrices) -> Result<Advice> {
    let site = EngineSite::new(&machine.machine, question)?;
    let one = question.model.as_deref().map(CataloguedModel::named).transpose()?;
    let catalog = match &one {
        Some(model) => vec![model.clone()],
        None => CataloguedModel::all()?,
    };
    let newest = CataloguedModel::all()?.iter().filter_map(|entry| entry.year).max().unwrap_or_default();
    let asked = catalog.iter().filter(|entry| one.is_some() || entry.purposes.contains(&question.purpose));
    let cells: Vec<_> = asked
        .flat_map(|entry| {
            let formats = match &question.format {
                Some(format) => vec![format.clone()],
                None => question.engine.formats(entry.own_format.as_deref()),
            };
            formats.into_iter().map(move |format| (entry, format))
        })
        .collect();
    let outcomes: Vec<_> =
        cells.par_iter().map(|(entry, format)| outcome(&site, question, entry, format, newest)).collect();
    let is_short = |outcome: &Result<AdviceRow, NotPlaced>| matches!(outcome, Err(NotPlaced::Short { .. }));
    let (never, short) = (outcomes.iter().all(Result::is_err), outcomes.iter().any(is_short));
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for ((entry, format), outcome) in cells.iter().zip(outcomes) {
        let (model, format) = (entry.model.name.clone(), format.clone());
        match outcome {
            Ok(row) => rows.push(row),
            Err(reason) => left_out.push(LeftOutModel { model, format, reason: reason.to_string() }),
        }
    }
    rank(&mut rows);
    match &one {
        Some(entry) if never && !short => return Err(impossible(&entry.model.name, question, &left_out)),
        Some(_) => {}
        None => keep_best_formats(&mut rows, &mut left_out),
    }
    let upgrades = match &one {
        Some(entry) => upgrades(machine, question, entry, &rows, prices, newest),
        None => vec![],
    };
    Ok(Advice {
        parts: machine.parts.clone(),
        assumed: machine.assumed.clone(),
        engine: question.engine,
        purpose: question.purpose,
        load: question.load(),
        context: question.room().context(),
        min_rate: question.least_rate(),
        rows,
        left_out,
        upgrades,
    })
}

/// The best first: those that are fast enough, by score; then the others, the fastest first.
fn rank(rows: &mut [AdviceRow]) {
    let value = |row: &AdviceRow| if row.fast_enough { row.score } else { row.tok_s };
    rows.sort_by(|a, b| {
        b.fast_enough.cmp(&a.fast_enough).then(value(b).total_cmp(&value(a))).then(a.model.cmp(&b.model))
    });
}

/// Keeps the first row of each model, and of each model without one the reason of its smallest
/// format.
fn keep_best_formats(rows: &mut Vec<AdviceRow>, left_out: &mut Vec<LeftOutModel>) {
    let mut seen: Vec<String> = Vec::new();
    rows.retain(|row| {
        let is_new = !seen.contains(&row.model);
        seen.push(row.model.clone());
        is_new
    });
    left_out.reverse();
    left_out.retain(|model| {
        let is_new = !seen.contains(&model.model);
        seen.push(model.model.clone());
        is_new
    });
    left_out.reverse();
}

/// The error of a model that the engine cannot run, whatever the memory.
fn impossible(model: &str, question: &AdviceQuestion, left_out: &[LeftOutModel]) -> Error {
    let why: Vec<_> = left_out.iter().map(|it| format!("\n  {:<10} {}", it.format, it.reason)).collect();
    let engine = question.engine;
    Error::input(format!("{model} does not run with {engine}:{}", why.concat()))
}
