//! Predicted against measured, both logarithmic: what lies on the diagonal was predicted exactly.

use super::diagonal::{Diagonal, LEFT, SIDE};
use super::{legend, legend_height, tick_label};
use crate::axis::Axis;
use crate::compare::Comparison;
use crate::configuration::Configuration;
use crate::numbers::{duration, signed_percent};
use crate::pair::Pair;
use crate::svg::{Anchor, Svg};
use crate::validation::{ERROR_BAND, Validation};
use scenarios::Phase;

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    Ttft,
    Tpot,
}

impl Metric {
    fn name(self) -> &'static str {
        match self {
            Metric::Ttft => "Time to first token",
            Metric::Tpot => "Time per output token",
        }
    }

    fn of(self, configuration: &Configuration) -> Option<Pair> {
        match self {
            Metric::Ttft => Some(configuration.ttft()),
            Metric::Tpot => configuration.tpot(),
        }
    }
}

/// A duration of something: the group that it belongs to, its name, and what was predicted and measured.
pub(crate) struct Point<'a> {
    group: usize,
    name: &'a str,
    pair: Pair,
}

/// Groups of durations with their names, as a file: an SVG that needs nothing else.
pub fn scatter(heading: &str, groups: &[(String, Vec<(String, Pair)>)]) -> String {
    let names: Vec<_> = groups.iter().map(|(name, _)| name.as_str()).collect();
    let points = groups.iter().enumerate().flat_map(|(group, (_, points))| {
        points.iter().map(move |(name, pair)| Point { group, name, pair: *pair })
    });
    plot(heading, &names, &points.collect::<Vec<_>>(), 2.5).standalone()
}

pub(crate) fn draw(validation: &Validation, metric: Metric) -> Svg {
    let kinds = validation.placement_kinds();
    let point = |it: &'_ Configuration| {
        let group = kinds.iter().position(|kind| *kind == it.label.placement).unwrap_or(0);
        metric.of(it).map(|pair| (group, pair))
    };
    let points = validation.configurations.iter().filter_map(|it| {
        let (group, pair) = point(it)?;
        Some(Point { group, name: &it.label.name, pair })
    });
    plot(metric.name(), &kinds, &points.collect::<Vec<_>>(), 5.5)
}

/// The operators and transfers of two joined traces, by phase.
pub(crate) fn draw_operators(comparison: &Comparison) -> Svg {
    let names: Vec<_> =
        comparison.operators.iter().map(|row| format!("{} on {}", row.name, row.lane)).collect();
    let points = comparison.operators.iter().zip(&names).map(|(row, name)| {
        let group = usize::from(row.phase == Phase::Decode);
        Point { group, name, pair: row.total }
    });
    plot("Operators", &["prefill", "decode"], &points.collect::<Vec<_>>(), 5.0)
}

fn plot(heading: &str, kinds: &[&str], points: &[Point<'_>], radius: f64) -> Svg {
    let top = 36.0 + legend_height(kinds, SIDE);
    let title = format!("{heading}: predicted against measured");
    let mut svg = Svg::new(LEFT + SIDE + 22.0, top + SIDE + 54.0, &title);
    let values = points.iter().flat_map(|point| [point.pair.predicted.get(), point.pair.measured.get()]);
    let x = Axis::logarithmic(values, [LEFT, LEFT + SIDE]);
    let y = x.on([top + SIDE, top]);
    svg.text("strong", [LEFT, 18.0], Anchor::Start, heading);
    legend(&mut svg, [LEFT, 42.0], SIDE, kinds, |svg, group, at| svg.marker(group, at, 5.0, ""));
    let square = Diagonal { band: ERROR_BAND, names: ["measured", "predicted"], label: tick_label };
    square.draw(&mut svg, &x, &y, top);
    for Point { group, name, pair } in points {
        let (predicted, measured) = (duration(pair.predicted), duration(pair.measured));
        let error = signed_percent(pair.error());
        let hover = format!("{name}: predicted {predicted}, measured {measured}, error {error}");
        let (predicted, measured) = pair.seconds();
        if predicted > 0.0 && measured > 0.0 {
            svg.marker(*group, [x.at(measured), y.at(predicted)], radius, &hover);
        }
    }
    svg
}
