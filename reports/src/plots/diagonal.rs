//! The square in which what agrees lies on the diagonal.

use crate::drawing::axis::PlotAxis;
use crate::drawing::svg::{Anchor, Svg};

/// Where the square begins, from the left.
pub(crate) const LEFT: f64 = 78.0;
/// Its side.
pub(crate) const SIDE: f64 = 400.0;

/// The diagonal with its band, the grid and the axes.
pub(crate) struct Diagonal {
    /// How far from the diagonal the band reaches, as a share.
    pub band: f64,
    /// What goes to the right, and what up.
    pub names: [&'static str; 2],
    /// A tick's text.
    pub label: fn(f64) -> String,
}

impl Diagonal {
    /// Draws it with its upper edge at `top`.
    pub(crate) fn draw(&self, svg: &mut Svg, x: &PlotAxis, y: &PlotAxis, top: f64) {
        let [low, high] = x.ends();
        let (above, below) = (1.0 + self.band, 1.0 - self.band);
        let corner = |right: f64, up: f64| [x.at(right), y.at(up)];
        let band = [
            corner(low, low),
            corner(low, low * above),
            corner(high / above, high),
            corner(high, high),
            corner(high, high * below),
            corner(low / below, low),
        ];
        svg.polygon("band", &band, &format!("within ±{:.0} %", self.band * 100.0));
        for tick in x.ticks(8) {
            let label = (self.label)(tick);
            svg.line("grid", [x.at(tick), top], [x.at(tick), top + SIDE]);
            svg.text("soft", [x.at(tick), top + SIDE + 19.0], Anchor::Middle, &label);
            svg.line("grid", [LEFT, y.at(tick)], [LEFT + SIDE, y.at(tick)]);
            svg.text("soft", [LEFT - 8.0, y.at(tick) + 4.5], Anchor::End, &label);
        }
        svg.line("ideal", corner(low, low), corner(high, high));
        svg.rect("frame", [LEFT, top], [SIDE, SIDE], "");
        let [right, up] = self.names;
        svg.text("", [LEFT + SIDE / 2.0, top + SIDE + 43.0], Anchor::Middle, right);
        svg.upright("", [16.0, top + SIDE / 2.0], up);
    }
}
