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
    // Rows with both numbers above zero, which have a place on logarithmic axes.
    let shown = reproduction.rows.iter().filter_map(|row| {
        let [published, ours] = [row.published?, row.ours?];
        let has_place = [published, ours].iter().all(|it| *it > 0.0 && it.is_finite());
        (has_place && !matches!(row.standing, Standing::Failed(_))).then_some((row, published, ours))
    });
    let rows: Vec<_> = shown.collect();
    let mut tables: Vec<&str> = Vec::new();
    for (row, ..) in &rows {
        if !tables.contains(&row.table.as_str()) {
            tables.push(&row.table);
        }
    }
    let values = rows.iter().flat_map(|(_, published, ours)| [*published, *ours]);
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
    for (row, published, ours) in rows {
        let group = tables.iter().position(|table| *table == row.table).unwrap_or(0);
        let hover = format!(
            "{}: published {published} {}, ours {ours:.4}, {} ({})",
            row.description,
            row.unit,
            signed_percent(row.error()),
            row.label()
        );
        // Rows that do not count have small markers.
        let radius = if row.standing == Standing::Scored { 4.0 } else { 2.5 };
        drawing.marker(group, [x.at(published), y.at(ours)], radius, &hover);
    }
    Some(drawing)
}

/// A tick without rounding errors: 0.2 may be 0.2 + 3e-17.
fn plain(tick: f64) -> String {
    format!("{tick:.3e}").parse::<f64>().unwrap_or(tick).to_string()
}
