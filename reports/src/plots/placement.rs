//! The device or memory of every sublayer: layers from left to right, sublayers from top to bottom.

use super::legend::legend;
use crate::numbers::format::percent;
use crate::plots::drawing::class::{COLOURS, Class};
use crate::plots::drawing::marks::{Anchor, Drawing};
use crate::results::placement_map::{PlacedPart, PlacedSublayer, PlacementMap};
use scenarios::Phase;

const LEFT: f64 = 92.0;
const CELL_HEIGHT: f64 = 24.0;

/// What the colour of a part shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlacementView {
    /// The device that computes the part.
    Device(Phase),
    /// The memory that holds its matrix or its KV cache.
    Home,
}

impl PlacementView {
    /// The name that chooses the colour, and whether the part is striped.
    fn subject(self, part: &PlacedPart) -> (&str, bool) {
        match self {
            PlacementView::Device(Phase::Prefill) => (&part.prefill, part.streamed[0]),
            PlacementView::Device(Phase::Decode) => (&part.decode, part.streamed[1]),
            PlacementView::Home => (&part.home, false),
        }
    }
}

/// Draws the device of every sublayer.
pub(crate) fn draw(map: &PlacementMap) -> Drawing {
    // One panel is enough where both phases use the same devices.
    let same_devices = sublayers(map).flat_map(|it| &it.parts).all(|part| part.prefill == part.decode);
    let panels: &[(&str, PlacementView)] = match same_devices {
        true => &[("prefill and decode", PlacementView::Device(Phase::Decode))],
        false => &[
            ("prefill", PlacementView::Device(Phase::Prefill)),
            ("decode", PlacementView::Device(Phase::Decode)),
        ],
    };
    draw_panels("The device of every sublayer", map, panels)
}

/// Draws the memory of every sublayer's matrix; for attention, that of the KV cache.
pub(crate) fn draw_homes(map: &PlacementMap) -> Drawing {
    draw_panels(
        "The memory of every sublayer's weights, and of the KV cache",
        map,
        &[("weights; beside attention, the KV cache", PlacementView::Home)],
    )
}

fn draw_panels(title: &str, map: &PlacementMap, panels: &[(&str, PlacementView)]) -> Drawing {
    let layers: usize = map.layers.iter().map(|group| group.count).sum();
    let cell = (720.0 / (layers as f64 + 2.0)).clamp(7.0, 34.0);
    let edge = cell.max(40.0);
    let width = LEFT + 2.0 * edge + cell * layers as f64 + 16.0;
    let parts = || sublayers(map).flat_map(|it| &it.parts);
    let mut devices: Vec<&str> = Vec::new();
    for name in parts().flat_map(|part| panels.iter().map(|(_, view)| view.subject(part).0)) {
        if !devices.contains(&name) {
            devices.push(name);
        }
    }
    let panel_height = CELL_HEIGHT * rows(map).len() as f64 + 58.0;
    let height = 34.0 + panel_height * panels.len() as f64;
    let mut drawing = Drawing::new(width.max(560.0), height, title);
    let mut names = devices.clone();
    if parts().any(|part| panels.iter().any(|(_, view)| view.subject(part).1)) {
        names.push("striped: streamed over a link");
    }
    legend(&mut drawing, [LEFT, 14.0], width.max(560.0) - LEFT, &names, |drawing, index, [x, y]| {
        let colour = if index < devices.len() { index % COLOURS } else { COLOURS - 1 };
        drawing.rect(Class::Bar(colour), [x - 6.0, y - 6.0], [12.0, 12.0], "");
        if index == devices.len() {
            drawing.rect(Class::Hatch, [x - 6.0, y - 6.0], [12.0, 12.0], "");
        }
    });
    for (index, (title, view)) in panels.iter().enumerate() {
        let top = 58.0 + panel_height * index as f64;
        drawing.text(Class::Strong, [LEFT, top - 10.0], Anchor::Start, title);
        Panel { devices: &devices, view: *view, top, cell, edge }.draw(&mut drawing, map, layers);
    }
    drawing
}

fn sublayers(map: &PlacementMap) -> impl Iterator<Item = &PlacedSublayer> {
    let inner = map.layers.iter().flat_map(|group| &group.sublayers);
    std::iter::once(&map.embed).chain(inner).chain([&map.head])
}

/// The rows of a panel: the sublayers of the layer that has the most.
fn rows(map: &PlacementMap) -> &[PlacedSublayer] {
    let most = map.layers.iter().map(|group| &group.sublayers[..]).max_by_key(|sublayers| sublayers.len());
    most.unwrap_or(&[])
}

/// One panel of the drawing.
struct Panel<'a> {
    devices: &'a [&'a str],
    view: PlacementView,
    top: f64,
    cell: f64,
    edge: f64,
}

impl Panel<'_> {
    fn draw(&self, drawing: &mut Drawing, map: &PlacementMap, layers: usize) {
        let first = LEFT + self.edge;
        let last = first + self.cell * layers as f64;
        let height = CELL_HEIGHT * rows(map).len() as f64;
        let below = self.top + height + 17.0;
        for (row, PlacedSublayer { sublayer, .. }) in rows(map).iter().enumerate() {
            let y = self.top + CELL_HEIGHT * (row as f64 + 0.5) + 4.5;
            drawing.text(Class::Soft, [LEFT - 8.0, y], Anchor::End, sublayer.name());
        }
        self.sublayer(drawing, &map.embed, [LEFT, self.top], [self.edge - 5.0, height], "embed");
        self.sublayer(drawing, &map.head, [last + 5.0, self.top], [self.edge - 5.0, height], "head");
        drawing.text(Class::Tiny, [LEFT + self.edge / 2.0 - 2.5, below], Anchor::Middle, "embed");
        drawing.text(Class::Tiny, [last + self.edge / 2.0 + 2.5, below], Anchor::Middle, "head");
        for group in &map.layers {
            for layer in group.first..group.first + group.count {
                let x = first + self.cell * layer as f64;
                for (row, sublayer) in group.sublayers.iter().enumerate() {
                    let y = self.top + CELL_HEIGHT * row as f64;
                    let place = format!("layer {layer}, {}", sublayer.sublayer);
                    self.sublayer(drawing, sublayer, [x, y], [self.cell, CELL_HEIGHT], &place);
                }
            }
        }
        // One number for about 28 pixels, at round layers.
        let step = [1, 2, 5, 10, 20, 50].into_iter().find(|it| *it as f64 * self.cell >= 28.0).unwrap_or(100);
        for layer in (0..layers).step_by(step) {
            let x = first + self.cell * (layer as f64 + 0.5);
            drawing.text(Class::Tiny, [x, below], Anchor::Middle, &layer.to_string());
        }
    }

    /// Draws the parts of a sublayer below each other, as high as their shares.
    fn sublayer(
        &self,
        drawing: &mut Drawing,
        it: &PlacedSublayer,
        [x, y]: [f64; 2],
        [width, height]: [f64; 2],
        place: &str,
    ) {
        let gap = if width > 12.0 { 1.5 } else { 0.6 };
        let mut top = y;
        for part in &it.parts {
            let (name, streamed) = self.view.subject(part);
            let colour = self.devices.iter().position(|device| *device == name).unwrap_or(0) % COLOURS;
            let share = if it.parts.len() > 1 {
                format!("{} of the rows, ", percent(part.share))
            } else {
                String::new()
            };
            let hover = match (self.view, streamed) {
                (PlacementView::Home, _) => format!("{place}: {share}in {name}"),
                (_, true) => format!("{place}: {share}on {name}, streamed from {}", part.home),
                (_, false) => format!("{place}: {share}on {name}, in {}", part.home),
            };
            let part_height = height * part.share;
            let (at, extent) =
                ([x + gap / 2.0, top + gap / 2.0], [width - gap, (part_height - gap).max(0.5)]);
            drawing.rect(Class::Bar(colour), at, extent, &hover);
            if streamed {
                drawing.rect(Class::Hatch, at, extent, &hover);
            }
            top += part_height;
        }
    }
}
