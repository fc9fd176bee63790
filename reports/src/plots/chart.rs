//! Charts of lines and points over two axes: load curves, fronts, distributions, rooflines.

use super::legend::{legend, legend_height, text_width};
use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};

const SIZE: [f64; 2] = [440.0, 300.0];
/// Room left of the ticks for the name of the axis.
const NAME: f64 = 40.0;
const RIGHT: f64 = 24.0;
/// About this many ticks on the vertical axis.
const TICKS: usize = 8;

/// Writes a number on an axis.
pub(crate) type TickFormat = fn(f64) -> String;

/// How one axis is scaled and labelled.
#[derive(Debug, Clone)]
pub(crate) struct AxisScale {
    /// The name of the axis.
    pub name: String,
    /// Whether equal distances are equal ratios. Values at or below zero are then left out.
    pub logarithmic: bool,
    /// Writes a tick.
    pub tick: TickFormat,
    /// Whether a linear axis starts near the smallest value rather than at zero.
    pub tight: bool,
}

impl AxisScale {
    pub(crate) fn linear(name: &str, tick: TickFormat) -> Self {
        Self { name: name.to_owned(), logarithmic: false, tick, tight: false }
    }

    pub(crate) fn logarithmic(name: &str, tick: TickFormat) -> Self {
        Self { name: name.to_owned(), logarithmic: true, tick, tight: false }
    }

    pub(crate) fn tight(name: &str, tick: TickFormat) -> Self {
        Self { tight: true, ..Self::linear(name, tick) }
    }

    /// An axis that holds `values`. A linear one starts at zero unless a value is below zero or the
    /// scale is tight.
    fn axis(&self, values: impl Iterator<Item = f64> + Clone, pixels: [f64; 2]) -> PlotAxis {
        let values = values.filter(|value| value.is_finite());
        if self.logarithmic {
            return PlotAxis::logarithmic(values, pixels);
        }
        let zero = (!self.tight).then_some(0.0);
        let ends = zero.into_iter().chain(values);
        let (least, most) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        let air = if self.tight { 0.1 } else { 0.05 } * (most - least).max(most.abs() * 0.01);
        let from = if self.tight || least < 0.0 { least - air } else { 0.0 };
        if least <= most && from < most + air {
            PlotAxis::linear(from, most + air, pixels)
        } else {
            PlotAxis::linear(0.0, 1.0, pixels)
        }
    }
}

/// One point of a series.
#[derive(Debug, Clone)]
pub(crate) struct PlotPoint {
    /// Its values on the two axes.
    pub at: [f64; 2],
    /// Its hover text.
    pub hover: String,
}

/// A series of points with one colour and marker.
#[derive(Debug, Clone)]
pub(crate) struct PlotSeries {
    /// The name in the legend.
    pub name: String,
    /// The points, in the order of the line.
    pub points: Vec<PlotPoint>,
    /// Whether a line joins the points.
    pub line: bool,
    /// The radius of the markers; no markers where 0.
    pub radius: f64,
}

/// A line that is not data: a limit, a ceiling.
#[derive(Debug, Clone)]
pub(crate) struct GuideLine {
    /// Where it runs.
    pub course: GuideCourse,
    /// Its label.
    pub name: String,
    /// Whether the axes extend to it.
    pub counts: bool,
}

/// Where a guide line runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GuideCourse {
    /// Over the whole height, at a value of the horizontal axis.
    Vertical(f64),
    /// Over the whole width, at a value of the vertical axis.
    Horizontal(f64),
    /// Between two points.
    Between([[f64; 2]; 2]),
}

impl GuideCourse {
    /// The values on one of the axes.
    fn values(self, side: usize) -> Vec<f64> {
        match self {
            Self::Vertical(x) => [x].into_iter().filter(|_| side == 0).collect(),
            Self::Horizontal(y) => [y].into_iter().filter(|_| side == 1).collect(),
            Self::Between(ends) => ends.map(|end| end[side]).to_vec(),
        }
    }
}

/// The description of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// The title.
    pub title: String,
    /// The horizontal and the vertical axis.
    pub scales: [AxisScale; 2],
    /// The series. They differ in colour and marker.
    pub series: Vec<PlotSeries>,
    /// Lines behind the series.
    pub guides: Vec<GuideLine>,
    /// Whether the first word of each hover text stands beside its point, where there is room.
    pub labels: bool,
}

impl Chart {
    pub(crate) fn new(title: &str, scales: [AxisScale; 2]) -> Self {
        Self { title: title.to_owned(), scales, series: vec![], guides: vec![], labels: false }
    }

    pub(crate) fn draw(&self) -> Drawing {
        let names: Vec<_> = self.series.iter().map(|series| series.name.as_str()).collect();
        let names = if names.len() > 1 { names } else { vec![] };
        let top = 36.0 + legend_height(&names, SIZE[0]);
        let bottom = top + SIZE[1];
        let axis = |side: usize, pixels| {
            let points = self.series.iter().flat_map(|series| &series.points).map(|point| point.at[side]);
            let guides = self.guides.iter().filter(|guide| guide.counts);
            let guides: Vec<_> = guides.flat_map(|guide| guide.course.values(side)).collect();
            self.scales[side].axis(points.chain(guides.iter().copied()), pixels)
        };
        let y = axis(1, [bottom, top]);
        let ticks = y.ticks(TICKS).into_iter().map(|tick| text_width(&(self.scales[1].tick)(tick)));
        let left = NAME + 0.9 * ticks.fold(30.0, f64::max);
        let frame = ChartFrame { x: axis(0, [left, left + SIZE[0]]), y };
        let mut drawing = Drawing::new(left + SIZE[0] + RIGHT, bottom + 54.0, &self.title);
        drawing.text(Class::Strong, [14.0, 18.0], Anchor::Start, &self.title);
        legend(&mut drawing, [left, 42.0], SIZE[0], &names, |drawing, group, at| {
            drawing.marker(group, at, 5.0, "")
        });
        frame.grid(&mut drawing, &self.scales, [top, bottom]);
        for guide in &self.guides {
            frame.guide(&mut drawing, guide);
        }
        let mut taken = Vec::new();
        for (group, series) in self.series.iter().enumerate() {
            self.series(&mut drawing, &frame, group, series, &mut taken);
        }
        drawing
    }

    fn series(
        &self,
        drawing: &mut Drawing,
        frame: &ChartFrame,
        group: usize,
        series: &PlotSeries,
        taken: &mut Vec<[f64; 2]>,
    ) {
        let seen = |point: &&PlotPoint| {
            let drawn = |side: usize| {
                point.at[side].is_finite() && (point.at[side] > 0.0 || !self.scales[side].logarithmic)
            };
            drawn(0) && drawn(1)
        };
        let points: Vec<_> = series.points.iter().filter(seen).collect();
        let places: Vec<_> = points.iter().map(|point| frame.at(point.at)).collect();
        if series.line && places.len() > 1 {
            drawing.path(Class::Curve(group), &places, &series.name);
        }
        for (point, &at) in points.iter().zip(&places).filter(|_| series.radius > 0.0) {
            drawing.marker(group, at, series.radius, &point.hover);
            let word = point.hover.split([':', ',']).next().unwrap_or("");
            let near = |[x, y]: &[f64; 2]| (y - at[1]).abs() < 11.0 && (x - at[0]).abs() < text_width(word);
            let fits = at[0] + 8.0 + 0.8 * text_width(word) < frame.x.pixels()[1];
            if self.labels && fits && !taken.iter().any(near) {
                drawing.text(Class::Tiny, [at[0] + 8.0, at[1] + 4.0], Anchor::Start, word);
                taken.push(at);
            }
        }
    }
}

/// The two axes of a chart.
struct ChartFrame {
    x: PlotAxis,
    y: PlotAxis,
}

impl ChartFrame {
    fn at(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [self.x.at(x), self.y.at(y)]
    }

    fn grid(&self, drawing: &mut Drawing, [across, up]: &[AxisScale; 2], [top, bottom]: [f64; 2]) {
        let [left, right] = self.x.pixels();
        for tick in self.x.ticks(7) {
            let x = self.x.at(tick);
            drawing.line(Class::Grid, [x, top], [x, bottom]);
            drawing.text(Class::Soft, [x, bottom + 19.0], Anchor::Middle, &(across.tick)(tick));
        }
        for tick in self.y.ticks(TICKS) {
            let y = self.y.at(tick);
            drawing.line(Class::Grid, [left, y], [right, y]);
            drawing.text(Class::Soft, [left - 8.0, y + 4.5], Anchor::End, &(up.tick)(tick));
        }
        drawing.rect(Class::Frame, [left, top], [right - left, bottom - top], "");
        drawing.text(Class::Text, [(left + right) / 2.0, bottom + 43.0], Anchor::Middle, &across.name);
        drawing.upright(Class::Text, [14.0, (top + bottom) / 2.0], &up.name);
    }

    /// Draws the part of a guide line within the frame, with its label above the right end.
    fn guide(&self, drawing: &mut Drawing, guide: &GuideLine) {
        let ([left, right], [bottom, top]) = (self.x.pixels(), self.y.pixels());
        let ends = match guide.course {
            GuideCourse::Vertical(x) => [[self.x.at(x), bottom], [self.x.at(x), top]],
            GuideCourse::Horizontal(y) => [[left, self.y.at(y)], [right, self.y.at(y)]],
            GuideCourse::Between(ends) => ends.map(|end| self.at(end)),
        };
        let Some([from, to]) = clipped(ends, [left, right], [bottom, top]) else {
            return;
        };
        drawing.path(Class::Ideal, &[from, to], &guide.name);
        let steep = (to[1] - from[1]).abs() > 0.2 * (to[0] - from[0]).abs();
        match steep {
            true => drawing.along(Class::Tiny, [from, to], &guide.name),
            false => drawing.text(Class::Tiny, [to[0] - 4.0, to[1] - 5.0], Anchor::End, &guide.name),
        }
    }
}

/// The part of a line within a rectangle, by the algorithm of Liang and Barsky; `None` where the
/// line misses it.
fn clipped([from, to]: [[f64; 2]; 2], x: [f64; 2], y: [f64; 2]) -> Option<[[f64; 2]; 2]> {
    let mut part = [0.0_f64, 1.0];
    for (side, ends) in [x, y].into_iter().enumerate() {
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let distance = to[side] - from[side];
        if distance == 0.0 && !(low..=high).contains(&from[side]) {
            return None;
        }
        if distance != 0.0 {
            let shares = [(low - from[side]) / distance, (high - from[side]) / distance];
            part = [part[0].max(shares[0].min(shares[1])), part[1].min(shares[0].max(shares[1]))];
        }
    }
    let at = |share: f64| [0, 1].map(|side| from[side] + share * (to[side] - from[side]));
    (part[0] < part[1]).then(|| part.map(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn a_clipped_line_lies_within_and_on_the_line(ends in proptest::array::uniform4(-200.0..200.0_f64)) {
            let [from, to] = [[ends[0], ends[1]], [ends[2], ends[3]]];
            let inside = |[x, y]: [f64; 2]| (-1e-6..=100.0 + 1e-6).contains(&x) && (-1e-6..=100.0 + 1e-6).contains(&y);
            match clipped([from, to], [0.0, 100.0], [100.0, 0.0]) {
                Some(part) => for [x, y] in part {
                    prop_assert!(inside([x, y]));
                    let cross = (x - from[0]) * (to[1] - from[1]) - (y - from[1]) * (to[0] - from[0]);
                    prop_assert!(cross.abs() < 1e-6 * 400.0 * 400.0, "{cross}");
                },
                None => for step in 0..=100 {
                    let share = f64::from(step) / 100.0;
                    let at = [0, 1].map(|side| from[side] + share * (to[side] - from[side]));
                    prop_assert!(!(at[0] > 1e-6 && at[0] < 100.0 - 1e-6 && at[1] > 1e-6 && at[1] < 100.0 - 1e-6));
                },
            }
        }
    }

    #[test]
    fn what_has_no_place_on_a_logarithmic_axis_is_left_out() {
        let mut chart = Chart::new(
            "c",
            [AxisScale::logarithmic("x", |v| v.to_string()), AxisScale::linear("y", |v| v.to_string())],
        );
        let point = |x: f64| PlotPoint { at: [x, 1.0], hover: format!("at {x}") };
        let points = vec![point(0.0), point(-1.0), point(f64::NAN), point(2.0)];
        chart.series.push(PlotSeries { name: "s".to_owned(), points, line: true, radius: 3.0 });
        let text = chart.draw().inline();
        assert_eq!(text.matches("<title>").count(), 1, "{text}");
        assert!(!text.contains("NaN") && text.contains("at 2"));
    }
}
