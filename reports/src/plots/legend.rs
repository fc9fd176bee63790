//! Legends, and the room that texts take.

use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};
use hwprofiles::Seconds;

/// The approximate width of a text of 13 pixels. It is too wide rather than too narrow, since the
/// reader's font is unknown.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 8.0
}

/// The height of a row of a legend.
const LEGEND_ROW: f64 = 20.0;

/// Draws the entries of a legend in as many rows as `width` requires. `sample` draws the symbol of
/// each entry.
pub(crate) fn legend(
    drawing: &mut Drawing,
    origin: [f64; 2],
    width: f64,
    names: &[&str],
    sample: impl Fn(&mut Drawing, usize, [f64; 2]),
) {
    for (index, (name, [x, y])) in names.iter().zip(legend_places(names, width)).enumerate() {
        let (x, y) = (origin[0] + x, origin[1] + y);
        sample(drawing, index, [x + 6.0, y]);
        drawing.text(Class::Text, [x + 18.0, y + 4.5], Anchor::Start, name);
    }
}

/// The height of a legend.
pub(crate) fn legend_height(names: &[&str], width: f64) -> f64 {
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
pub(crate) fn tick_label(seconds: f64) -> String {
    // A tick of 0.2 may be 0.2 + 3e-17; its text must not show that.
    let rounded = format!("{seconds:.3e}").parse().unwrap_or(seconds);
    if rounded == 0.0 { "0".to_owned() } else { Seconds::new(rounded).to_string() }
}
