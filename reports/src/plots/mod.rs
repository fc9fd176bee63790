//! The plots, one per file.

pub(crate) mod errors;
pub(crate) mod memory;
pub(crate) mod placement;
pub(crate) mod scatter;
pub(crate) mod timeline;

use crate::error::ReportError;
use crate::svg::{Anchor, Svg};
use crate::validation::Validation;
use hwprofiles::{Seconds, write_atomically};
use std::path::Path;

impl Validation {
    /// Every plot as a file: (name, text of an SVG that needs nothing else).
    pub fn plots(&self) -> Vec<(String, String)> {
        let mut plots = vec![
            ("predicted-vs-measured-ttft".to_owned(), scatter::draw(self, scatter::Metric::Ttft)),
            ("predicted-vs-measured-tpot".to_owned(), scatter::draw(self, scatter::Metric::Tpot)),
            ("errors".to_owned(), errors::draw(self)),
        ];
        if let Some(shown) = self.shown() {
            for timeline in &shown.comparison.timelines {
                let phase = timeline.step.phase;
                plots.push((format!("step-{phase}"), timeline::draw(timeline)));
                plots.push((format!("step-{phase}-layers"), timeline::draw_layers(timeline)));
            }
            plots.push(("memory".to_owned(), memory::draw(&shown.memory)));
            plots.push(("placement".to_owned(), placement::draw(&shown.placement)));
        }
        plots.into_iter().map(|(name, plot)| (format!("{name}.svg"), plot.standalone())).collect()
    }

    /// Writes every plot into `folder`.
    pub fn write_plots(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        for (name, text) in self.plots() {
            write_atomically(folder.as_ref().join(name), text)?;
        }
        Ok(())
    }
}

/// About how wide a text of 13 pixels is, in pixels. Without a font nobody knows; this errs on the wide side.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 8.0
}

/// Height of a row of a legend.
const LEGEND_ROW: f64 = 20.0;

/// Entries of a legend, in as many rows as `width` makes necessary, each with what `sample` draws at its left end.
fn legend(
    svg: &mut Svg,
    origin: [f64; 2],
    width: f64,
    names: &[&str],
    sample: impl Fn(&mut Svg, usize, [f64; 2]),
) {
    for (index, (name, [x, y])) in names.iter().zip(legend_places(names, width)).enumerate() {
        let (x, y) = (origin[0] + x, origin[1] + y);
        sample(svg, index, [x + 6.0, y]);
        svg.text("", [x + 18.0, y + 4.5], Anchor::Start, name);
    }
}

/// The height that a legend takes.
fn legend_height(names: &[&str], width: f64) -> f64 {
    legend_places(names, width).last().map_or(0.0, |[_, y]| y + LEGEND_ROW)
}

fn legend_places(names: &[&str], width: f64) -> Vec<[f64; 2]> {
    let (mut x, mut y) = (0.0, 0.0);
    let places = names.iter().map(|name| {
        let own = 34.0 + text_width(name);
        if x > 0.0 && x + own > width {
            (x, y) = (0.0, y + LEGEND_ROW);
        }
        x += own;
        [x - own, y]
    });
    places.collect()
}

/// A round number of seconds without needless digits: `200 ms`.
fn tick_label(seconds: f64) -> String {
    // A tick of 0.2 may be 0.2 + 3e-17; its text must not show that.
    let rounded = format!("{seconds:.3e}").parse().unwrap_or(seconds);
    if rounded == 0.0 { "0".to_owned() } else { Seconds::new(rounded).to_string() }
}
