//! Predicted against measured times on logarithmic axes. Exact predictions lie on the diagonal.

use super::diagonal::{Diagonal, LEFT, SIDE};
use super::legend::{legend, legend_height, tick_label};
use crate::numbers::format::{duration, signed_percent};
use crate::numbers::pair::Pair;
use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};
use crate::results::comparison::Comparison;
use crate::results::configuration::Configuration;
use crate::results::validation::{ERROR_BAND, Validation};
use scenarios::Phase;

/// The time that is plotted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeMetric {
    Ttft,
    Tpot,
}

impl TimeMetric {
    fn name(self) -> &'static str {
        match self {
            TimeMetric::Ttft => "Time to first token",
            TimeMetric::Tpot => "Time per output token",
        }
    }

    fn pair(self, configuration: &Configuration) -> Option<Pair> {
        match self {
            TimeMetric::Ttft => Some(configuration.ttft()),
            TimeMetric::Tpot => configuration.tpot(),
        }
    }
}

/// A point: its group, its name, and the predicted and measured time.
pub(crate) struct ScatterPoint<'a> {
    group: usize,
    name: &'a str,
    pair: Pair,
}

/// Plots groups of named times as a self-contained SVG file.
pub fn scatter(heading: &str, groups: &[(String, Vec<(String, Pair)>)]) -> String {
    let names: Vec<_> = groups.iter().map(|(name, _)| name.as_str()).collect();
    let points = groups.iter().enumerate().flat_map(|(group, (_, points))| {
        points.iter().map(move |(name, pair)| ScatterPoint { group, name, pair: *pair })
    });
    plot(heading, &names, &points.collect::<Vec<_>>(), 2.5).standalone()
}

pub(crate) fn draw(validation: &Validation, metric: TimeMetric) -> Drawing {
    let kinds = validation.placement_kinds();
    let point = |it: &'_ Configuration| {
        let group = kinds.iter().position(|kind| *kind == it.label.placement).unwrap_or(0);
        metric.pair(it).map(|pair| (group, pair))
    };
    let points = validation.configurations.iter().filter_map(|it| {
        let (group, pair) = point(it)?;
        Some(ScatterPoint { group, name: &it.label.name, pair })
    });
    plot(metric.name(), &kinds, &points.collect::<Vec<_>>(), 5.5)
}

/// Plots the operators and transfers of two joined traces, by phase.
pub(crate) fn draw_operators(comparison: &Comparison) -> Drawing {
    let names: Vec<_> =
        comparison.operators.iter().map(|row| format!("{} on {}", row.name, row.lane)).collect();
    let points = comparison.operators.iter().zip(&names).map(|(row, name)| {
        let group = usize::from(row.phase == Phase::Decode);
        ScatterPoint { group, name, pair: row.total }
    });
    plot("Operators", &["prefill", "decode"], &points.collect::<Vec<_>>(), 5.0)
}

fn plot(heading: &str, kinds: &[&str], points: &[ScatterPoint<'_>], radius: f64) -> Drawing {
    let top = 36.0 + legend_height(kinds, SIDE);
    let title = format!("{heading}: predicted against measured");
    let mut drawing = Drawing::new(LEFT + SIDE + 22.0, top + SIDE + 54.0, &title);
    let values = points.iter().flat_map(|point| [point.pair.predicted.get(), point.pair.measured.get()]);
    let x = PlotAxis::logarithmic(values, [LEFT, LEFT + SIDE]);
    let y = x.on([top + SIDE, top]);
    drawing.text(Class::Strong, [LEFT, 18.0], Anchor::Start, heading);
    legend(&mut drawing, [LEFT, 42.0], SIDE, kinds, |drawing, group, at| drawing.marker(group, at, 5.0, ""));
    let square = Diagonal { band: ERROR_BAND, names: ["measured", "predicted"], label: tick_label };
    square.draw(&mut drawing, &x, &y, top);
    for ScatterPoint { group, name, pair } in points {
        let (predicted, measured) = (duration(pair.predicted), duration(pair.measured));
        let error = signed_percent(pair.error());
        let hover = format!("{name}: predicted {predicted}, measured {measured}, error {error}");
        let (predicted, measured) = pair.seconds();
        if predicted > 0.0 && measured > 0.0 {
            drawing.marker(*group, [x.at(measured), y.at(predicted)], radius, &hover);
        }
    }
    drawing
}
