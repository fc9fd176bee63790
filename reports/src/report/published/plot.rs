//! Our numbers against published ones on logarithmic axes, whatever their units.

use crate::numbers::format::signed_percent;
use crate::plots::diagonal::{Diagonal, LEFT, SIDE};
use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};
use crate::plots::legend::{legend, legend_height};
use crate::report::published::{Reproduction, Standing};

/// The half width of the band around the diagonal.
const BAND: f64 = 0.15;

/// Draws a system's rows; `None` where no row has two numbers above zero.
pub(crate) fn draw(reproduction: &Reproduction) -> Option<Drawing> {
    let shown = |row: &&crate::report::published::ReproducedRow| {
        let above = |number: f64| number > 0.0 && number.is_finite();
        row.ours.is_some_and(above) && above(row.published) && !matches!(row.standing, Standing::Failed(_))
    };
    let rows: Vec<_> = reproduction.rows.iter().filter(shown).collect();
    let mut tables: Vec<&str> = Vec::new();
    for row in &rows {
        if !tables.contains(&row.table.as_str()) {
            tables.push(&row.table);
        }
    }
    let values = rows.iter().flat_map(|row| [row.published, row.ours.unwrap_or(row.published)]);
    if rows.is_empty() {
        return None;
    }
    let top = 36.0 + legend_height(&tables, SIDE);
    let title = format!("{}: ours against published", reproduction.system);
    let mut drawing = Drawing::new(LEFT + SIDE + 22.0, top + SIDE + 54.0, &title);
    let x = PlotAxis::logarithmic(values, [LEFT, LEFT + SIDE]);
    let y = x.on([top + SIDE, top]);
    drawing.text(Class::Strong, [LEFT, 18.0], Anchor::Start, &reproduction.system);
    legend(&mut drawing, [LEFT, 42.0], SIDE, &tables, |drawing, group, at| {
        drawing.marker(group, at, 5.0, "")
    });
    Diagonal { band: BAND, names: ["published", "ours"], label: plain }.draw(&mut drawing, &x, &y, top);
    for row in rows {
        let ours = row.ours.unwrap_or(row.published);
        let group = tables.iter().position(|table| *table == row.table).unwrap_or(0);
        let hover = format!(
            "{}: published {} {}, ours {ours:.4}, {} ({})",
            row.description,
            row.published,
            row.unit,
            signed_percent(row.error()),
            row.label()
        );
        // Rows that do not count have small markers.
        let radius = if row.standing == Standing::Scored { 4.0 } else { 2.5 };
        drawing.marker(group, [x.at(row.published), y.at(ours)], radius, &hover);
    }
    Some(drawing)
}

/// A tick without rounding errors: 0.2 may be 0.2 + 3e-17.
fn plain(tick: f64) -> String {
    format!("{tick:.3e}").parse::<f64>().unwrap_or(tick).to_string()
}
