//! The signed error of every configuration, with the spread of its repeats.

use super::legend::{legend, text_width};
use crate::numbers::format::{duration, signed_percent};
use crate::numbers::pair::Pair;
use crate::numbers::statistics::percentile;
use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};
use crate::results::configuration::Configuration;
use crate::results::validation::{ERROR_BAND, Validation};

const TOP: f64 = 40.0;
const ROW: f64 = 34.0;
const WIDTH: f64 = 520.0;
/// Longer names are cut; the hover text has the whole name.
const LONGEST_NAME: usize = 30;

pub(crate) fn draw(validation: &Validation) -> Drawing {
    let names: Vec<_> = validation.configurations.iter().map(|it| cut(&it.label.name)).collect();
    let left = names.iter().map(|name| text_width(name)).fold(80.0, f64::max) + 14.0;
    let bottom = TOP + ROW * names.len() as f64;
    let mut drawing = Drawing::new(left + WIDTH + 24.0, bottom + 52.0, "Signed error of every configuration");
    let axis = axis(validation, left);
    let edges = [-ERROR_BAND, ERROR_BAND].map(|it| axis.at(it));
    let hover = format!("within ±{:.0} %", ERROR_BAND * 100.0);
    drawing.rect(Class::Band, [edges[0], TOP], [edges[1] - edges[0], bottom - TOP], &hover);
    for tick in axis.ticks(8) {
        drawing.line(Class::Grid, [axis.at(tick), TOP], [axis.at(tick), bottom]);
        let label = format!("{:+.0} %", tick * 100.0);
        let label = if tick.abs() < 1e-9 { "0" } else { &label };
        drawing.text(Class::Soft, [axis.at(tick), bottom + 19.0], Anchor::Middle, label);
    }
    drawing.line(Class::Axis, [axis.at(0.0), TOP], [axis.at(0.0), bottom]);
    let caption = "predicted ÷ measured − 1";
    drawing.text(Class::Text, [left + WIDTH / 2.0, bottom + 43.0], Anchor::Middle, caption);
    legend(&mut drawing, [left, 16.0], WIDTH, &["TTFT", "TPOT"], |drawing, group, at| {
        drawing.marker(group, at, 5.0, "")
    });
    for (index, (it, name)) in validation.configurations.iter().zip(&names).enumerate() {
        let middle = TOP + ROW * (index as f64 + 0.5);
        drawing.text(Class::Text, [left - 10.0, middle + 4.5], Anchor::End, name);
        for (group, (metric, pair, runs)) in metrics(it).into_iter().enumerate() {
            let y = middle + if group == 0 { -7.0 } else { 7.0 };
            mark(&mut drawing, &axis, (group, y), (&it.label.name, metric), pair, &runs);
        }
    }
    drawing
}

/// The metrics of a configuration: name, times, and the measured times of the repeats.
fn metrics(it: &Configuration) -> Vec<(&'static str, Pair, Vec<f64>)> {
    let ttft = ("TTFT", it.ttft(), it.runs.iter().map(|run| run.ttft.get()).collect());
    let tpot = it.tpot().map(|pair| {
        ("TPOT", pair, it.runs.iter().filter_map(|run| run.tpot).map(|time| time.get()).collect())
    });
    [Some(ttft), tpot].into_iter().flatten().collect()
}

/// Draws a line from zero to the error, the marker, and a thin line for the errors against the
/// quartiles of the repeats.
fn mark(
    drawing: &mut Drawing,
    axis: &PlotAxis,
    (group, y): (usize, f64),
    (name, metric): (&str, &str),
    pair: Pair,
    runs: &[f64],
) {
    let Some(error) = pair.error() else { return };
    drawing.line(Class::Stem(group), [axis.at(0.0), y], [axis.at(error), y]);
    let predicted = pair.predicted.get();
    let quartiles = [25.0, 75.0].map(|percent| percentile(runs, percent).filter(|it| *it > 0.0));
    if let [Some(first), Some(third)] = quartiles {
        let ends = [predicted / third - 1.0, predicted / first - 1.0].map(|it| axis.at(it));
        drawing.line(Class::Axis, [ends[0], y], [ends[1], y]);
        ends.iter().for_each(|x| drawing.line(Class::Axis, [*x, y - 4.0], [*x, y + 4.0]));
    }
    let (predicted, measured) = (duration(pair.predicted), duration(pair.measured));
    let hover = format!(
        "{name}, {metric}: predicted {predicted}, measured {measured}, error {}",
        signed_percent(Some(error))
    );
    drawing.marker(group, [axis.at(error), y], 5.0, &hover);
}

/// An axis around zero that holds the largest error and the band with a margin.
fn axis(validation: &Validation, left: f64) -> PlotAxis {
    let errors = validation
        .configurations
        .iter()
        .flat_map(|it| [it.ttft().error(), it.tpot().and_then(|p| p.error())]);
    let widest = errors.flatten().fold(1.5 * ERROR_BAND, |widest, error| error.abs().max(widest));
    PlotAxis::linear(-1.1 * widest, 1.1 * widest, [left, left + WIDTH])
}

fn cut(name: &str) -> String {
    match name.chars().count() {
        length if length <= LONGEST_NAME => name.to_owned(),
        _ => name.chars().take(LONGEST_NAME - 1).chain(['…']).collect(),
    }
}
