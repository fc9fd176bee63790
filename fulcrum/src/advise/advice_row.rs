//! A model in a format on a machine: how fast it is, and what it is worth.

use super::engine_command::command;
use super::model_catalog::CataloguedModel;
use super::model_places::PlacementClass;
use super::placing::{EngineOnMachine, NotPlaced, PlacedModel};
use super::prediction_band::{band, size_kept};
use super::question::AdviceQuestion;
use hwprofiles::{Bytes, Ratio, Seconds};
use scenarios::QualityLoss;
use serde::Serialize;

/// A model in a format, and where the engine puts it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdviceRow {
    /// The model.
    pub model: String,
    /// The format of its weights.
    pub format: String,
    /// Tokens per second of all sequences together.
    pub tok_s: f64,
    /// Between these rates are 80 % of the public runs that are placed like this.
    pub tok_s_band: [f64; 2],
    /// Time to the first token of the load's prompt.
    pub ttft: Seconds,
    /// Time per token of one sequence.
    pub tpot: Seconds,
    /// The rise of the perplexity by the format, where a figure is published; `None` where the
    /// model was trained in it or nothing is known.
    pub quality_loss: Option<f64>,
    /// Bytes of the weights.
    pub weights: Bytes,
    /// Where things are, in about five words.
    pub places: String,
    /// The kind of placement.
    pub class: PlacementClass,
    /// Whether it is as fast as was asked for.
    pub fast_enough: bool,
    /// What starts it.
    pub command: String,
    /// What rows that are fast enough are ranked by: the size of an equally capable dense model,
    /// less for what the format loses, × rate ÷ (rate + the rate that suffices). Slower rows are
    /// ranked by `tok_s`.
    pub score: f64,
}

/// The row of a model in a format, or why there is none.
pub(super) fn outcome(
    site: &EngineOnMachine,
    question: &AdviceQuestion,
    entry: &CataloguedModel,
    format: &str,
    newest: u64,
) -> Result<AdviceRow, NotPlaced> {
    let formats = question.engine.formats_named(format, &entry.model).map_err(NotPlaced::Impossible)?;
    let placed = site.place(&entry.model, &formats)?;
    let PlacedModel { places, times, .. } = placed;
    let load = question.load();
    let tpot = times.tpot.unwrap_or(times.ttft);
    let batch = load.batch as f64;
    let loss = QualityLoss::from_formats(&formats, &entry.model).ok().map(QualityLoss::share);
    let kept = loss.and_then(Ratio::new).map_or(1.0, size_kept);
    let answer = times.ttft.get() + tpot.get() * load.output_tokens as f64;
    let (rate, enough) = (batch * load.output_tokens as f64 / answer, question.purpose.enough());
    let tok_s = batch / tpot.get();
    Ok(AdviceRow {
        model: entry.model.name.clone(),
        format: format.to_owned(),
        tok_s,
        tok_s_band: band(places.class(), tpot).map(|rate| rate * batch),
        ttft: times.ttft,
        tpot,
        quality_loss: loss,
        weights: entry.model.weight_bytes(&formats),
        places: places.words(),
        class: places.class(),
        fast_enough: tok_s >= question.least_rate(),
        command: command(question, entry, format, &placed),
        score: entry.capability(newest) * kept * rate / (rate + enough),
    })
}
