//! A tornado chart: a bar for each figure, from the result with its low value to the result with
//! its high value.

use super::chart::TickFormat;
use super::legend::legend;
use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};

const TOP: f64 = 66.0;
/// A name with its bar below. On a phone there is no room beside it.
const ROW: f64 = 46.0;
const LEFT: f64 = 14.0;
const WIDTH: f64 = 270.0;

/// One figure and the results at its ends.
#[derive(Debug, Clone)]
pub(crate) struct TornadoBar {
    /// The name of the figure.
    pub name: String,
    /// Its low and its high value, as texts.
    pub values: [String; 2],
    /// The result with each value.
    pub answers: [f64; 2],
}

/// Draws the bars around `base`, the result with all figures as they are; the widest bar first.
pub(crate) fn draw(title: &str, base: f64, bars: &[TornadoBar], tick: TickFormat) -> Drawing {
    let mut bars: Vec<_> = bars.iter().filter(|bar| bar.answers.iter().all(|it| it.is_finite())).collect();
    // Both ends may lie on one side of `base`.
    let width = |bar: &TornadoBar| {
        let [low, high] = [f64::min, f64::max].map(|pick| bar.answers.into_iter().fold(base, pick));
        high - low
    };
    bars.sort_by(|a, b| width(b).total_cmp(&width(a)));
    let bottom = TOP + ROW * bars.len() as f64;
    let mut drawing = Drawing::new(LEFT + WIDTH + 100.0, bottom + 36.0, title);
    drawing.text(Class::Strong, [14.0, 18.0], Anchor::Start, title);
    legend(&mut drawing, [LEFT + 6.0, 42.0], WIDTH, &["low value", "high value"], |drawing, side, [x, y]| {
        drawing.rect(Class::Bar(side), [x - 6.0, y - 6.0], [12.0, 12.0], "");
    });
    let answers = || bars.iter().flat_map(|bar| bar.answers).chain([base]);
    let (least, most) =
        (answers().fold(f64::INFINITY, f64::min), answers().fold(f64::NEG_INFINITY, f64::max));
    let air = 0.08 * (most - least).max(base.abs() * 0.01);
    let axis = PlotAxis::linear(least - air, most + air, [LEFT, LEFT + WIDTH]);
    for at in axis.ticks(4) {
        drawing.line(Class::Grid, [axis.at(at), TOP], [axis.at(at), bottom]);
        drawing.text(Class::Soft, [axis.at(at), bottom + 19.0], Anchor::Middle, &tick(at));
    }
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * index as f64 + 20.0;
        drawing.text(Class::Text, [LEFT, y - 5.0], Anchor::Start, &bar.name);
        for (side, (answer, value)) in bar.answers.iter().zip(&bar.values).enumerate() {
            let ends = [axis.at(base), axis.at(*answer)];
            let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            // Each end has its own half of the bar's height, since both may lie on one side.
            let (y, height) = (y + 10.0 * side as f64, 10.0);
            let hover = format!("{} {value}: {}", bar.name, tick(*answer));
            drawing.rect(Class::Bar(side), [from, y], [to - from, height], &hover);
        }
        let end = bar.answers.iter().map(|it| axis.at(*it)).fold(axis.at(base), f64::max);
        drawing.text(Class::Tiny, [end + 6.0, y + 14.0], Anchor::Start, &bar.answers.map(tick).join(" to "));
    }
    drawing.line(Class::Limit, [axis.at(base), TOP - 4.0], [axis.at(base), bottom]);
    drawing
}
