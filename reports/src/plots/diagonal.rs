//! A square plot of two values that should agree: exact agreement lies on the diagonal.

use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};

/// The left edge of the square.
pub(crate) const LEFT: f64 = 78.0;
/// The side of the square.
pub(crate) const SIDE: f64 = 400.0;

/// The diagonal with its band, the grid and the axes.
pub(crate) struct Diagonal {
    /// The half width of the band, as a share of the value.
    pub band: f64,
    /// The names of the horizontal and the vertical axis.
    pub names: [&'static str; 2],
    /// Writes a tick.
    pub label: fn(f64) -> String,
}

impl Diagonal {
    /// Draws the square with its upper edge at `top`.
    pub(crate) fn draw(&self, drawing: &mut Drawing, x: &PlotAxis, y: &PlotAxis, top: f64) {
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
        drawing.polygon(Class::Band, &band, &format!("within ±{:.0} %", self.band * 100.0));
        for tick in x.ticks(8) {
            let label = (self.label)(tick);
            drawing.line(Class::Grid, [x.at(tick), top], [x.at(tick), top + SIDE]);
            drawing.text(Class::Soft, [x.at(tick), top + SIDE + 19.0], Anchor::Middle, &label);
            drawing.line(Class::Grid, [LEFT, y.at(tick)], [LEFT + SIDE, y.at(tick)]);
            drawing.text(Class::Soft, [LEFT - 8.0, y.at(tick) + 4.5], Anchor::End, &label);
        }
        drawing.line(Class::Ideal, corner(low, low), corner(high, high));
        drawing.rect(Class::Frame, [LEFT, top], [SIDE, SIDE], "");
        let [right, up] = self.names;
        drawing.text(Class::Text, [LEFT + SIDE / 2.0, top + SIDE + 43.0], Anchor::Middle, right);
        drawing.upright(Class::Text, [16.0, top + SIDE / 2.0], up);
    }
}
