//! The one routine that draws a [`Drawing`], on any plotters backend.

use crate::plots::drawing::class::{Class, Paint};
use crate::plots::drawing::marks::{Anchor, Drawing, Label, Mark, Shape};
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Drawable, PointCollection};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind};

/// The name under which the font of bitmaps is registered.
pub(super) const FONT_NAME: &str = "plots";
/// The height of the font's lines ÷ its size: (1901 + 483) ÷ 2048. A font's size means its lines
/// here.
const LINE_HEIGHT: f64 = 2384.0 / 2048.0;
/// The distance of stripes and their width, in pixels.
const STRIPES: [f64; 2] = [6.0, 2.0];
/// How opaque stripes are.
const STRIPE_OPACITY: f64 = 0.65;

/// What a method of a surface returns.
pub(super) type Drawn<S> = Result<(), DrawingErrorKind<<S as DrawingBackend>::ErrorType>>;

/// A plotters backend that knows what plotters does not: classes, dashes, stripes, turned texts.
///
/// The default methods are for pixels. A surface with a style sheet overrides them.
pub(crate) trait Surface: DrawingBackend {
    /// Units of the backend for a pixel of the drawing.
    const UNITS: f64;

    /// Tells which mark the next shapes belong to. A mark's area comes before its outline.
    fn begin(&mut self, _mark: &Mark) {}

    /// Draws a line through points.
    fn polyline(&mut self, points: &[BackendCoord], paint: &Paint) -> Drawn<Self> {
        let Some((colour, width)) = paint.stroke else { return Ok(()) };
        let width = units::<Self>(width);
        let style = ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: width };
        for line in dashed(points, paint.dashes, Self::UNITS) {
            for ends in line.windows(2) {
                self.draw_line(ends[0], ends[1], &style)?;
            }
            // Thick lines are drawn one by one: circles fill the gaps where they meet.
            for joint in line.iter().skip(1).take(line.len().saturating_sub(2)) {
                self.draw_circle(*joint, width / 2, &style, true)?;
            }
        }
        Ok(())
    }

    /// Draws stripes over a rectangle.
    fn stripes(&mut self, [from, to]: [BackendCoord; 2], colour: RGBColor) -> Drawn<Self> {
        let [distance, width] = STRIPES.map(|it| it * Self::UNITS);
        let colour = colour.mix(STRIPE_OPACITY).to_backend_color();
        for y in from.1..to.1 {
            for x in from.0..to.0 {
                let across = f64::from(x + y) * std::f64::consts::FRAC_1_SQRT_2;
                if across.rem_euclid(distance) < width {
                    self.draw_pixel((x, y), colour)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a text at `at`, in units.
    fn label(&mut self, label: &Label, at: BackendCoord, paint: &Paint) -> Drawn<Self> {
        let Some(colour) = paint.fill else { return Ok(()) };
        let glyphs = Glyphs::rasterize(&label.text, paint.text_size * Self::UNITS)
            .map_err(|error| DrawingErrorKind::FontError(Box::new(error)))?;
        let start = match label.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -glyphs.length / 2.0,
            Anchor::End => -glyphs.length,
        };
        let (sin, cos) = label.turn.to_radians().sin_cos();
        let [columns, rows] = glyphs.bounds(start, [sin, cos]);
        let (width, height) = self.get_size();
        for y in (at.1 + rows[0]).max(0)..(at.1 + rows[1]).min(height as i32) {
            for x in (at.0 + columns[0]).max(0)..(at.0 + columns[1]).min(width as i32) {
                // Turned back into the text's own coordinates, so that no pixel is missed.
                let (dx, dy) = (f64::from(x - at.0), f64::from(y - at.1));
                let coverage = glyphs.at(dx * cos + dy * sin - start, dy * cos - dx * sin);
                if coverage > 0.0 {
                    let rgb = (colour.0, colour.1, colour.2);
                    self.draw_pixel((x, y), BackendColor { alpha: coverage, rgb })?;
                }
            }
        }
        Ok(())
    }
}

/// Draws `drawing` on `surface` and presents it.
///
/// # Errors
/// What the surface refuses, and a font that is not registered.
pub(crate) fn paint<S: Surface>(
    drawing: &Drawing,
    surface: S,
) -> Result<(), DrawingAreaErrorKind<S::ErrorType>> {
    let area = surface.into_drawing_area();
    for mark in drawing.marks() {
        area.draw(&Element { mark, scale: S::UNITS })?;
    }
    area.present()
}

/// A mark as an element of plotters.
struct Element<'m> {
    mark: &'m Mark,
    scale: f64,
}

impl<'a> PointCollection<'a, BackendCoord> for &'a Element<'_> {
    type Point = BackendCoord;
    type IntoIter = Vec<BackendCoord>;

    fn point_iter(self) -> Vec<BackendCoord> {
        let points = match &self.mark.shape {
            Shape::Rect { corners } => &corners[..],
            Shape::Path(points) | Shape::Polygon(points) => points,
            Shape::Circle { centre, .. } => std::slice::from_ref(centre),
            Shape::Text(label) => std::slice::from_ref(&label.at),
        };
        let unit = |value: f64| (value * self.scale).round() as i32;
        points.iter().map(|[x, y]| (unit(*x), unit(*y))).collect()
    }
}

impl<S: Surface> Drawable<S> for Element<'_> {
    fn draw<I: Iterator<Item = BackendCoord>>(&self, points: I, surface: &mut S, _: (u32, u32)) -> Drawn<S> {
        let mut points: Vec<_> = points.collect();
        let paint = self.mark.class.paint();
        let area = |colour: RGBColor| ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: 0 };
        let outline = paint.stroke.map(|(colour, width)| ShapeStyle {
            color: colour.to_rgba(),
            filled: false,
            stroke_width: units::<S>(width),
        });
        surface.begin(self.mark);
        match &self.mark.shape {
            Shape::Rect { .. } if self.mark.class == Class::Hatch => {
                surface.stripes([points[0], points[1]], paint.fill.unwrap_or(RGBColor(0, 0, 0)))
            }
            Shape::Rect { .. } => {
                if let Some(colour) = paint.fill {
                    surface.draw_rect(points[0], points[1], &area(colour), true)?;
                }
                outline.map_or(Ok(()), |style| surface.draw_rect(points[0], points[1], &style, false))
            }
            Shape::Path(_) => surface.polyline(&points, &paint),
            Shape::Polygon(_) => {
                if let Some(colour) = paint.fill {
                    surface.fill_polygon(points.iter().copied(), &area(colour))?;
                }
                points.extend(points.first().copied());
                surface.polyline(&points, &paint)
            }
            Shape::Circle { radius, .. } => {
                let radius = (radius * S::UNITS).round() as u32;
                if let Some(colour) = paint.fill {
                    surface.draw_circle(points[0], radius, &area(colour), true)?;
                }
                outline.map_or(Ok(()), |style| surface.draw_circle(points[0], radius, &style, false))
            }
            Shape::Text(label) => surface.label(label, points[0], &paint),
        }
    }
}

/// A width in units, at least one.
fn units<S: Surface>(pixels: f64) -> u32 {
    (pixels * S::UNITS).round().max(1.0) as u32
}

/// The pieces of a line that `dashes` leaves, which alternates dashes and gaps in pixels.
fn dashed(points: &[BackendCoord], dashes: &[f64], scale: f64) -> Vec<Vec<BackendCoord>> {
    if dashes.is_empty() {
        return vec![points.to_vec()];
    }
    let mut lengths = dashes.iter().map(|length| length * scale).cycle();
    let (mut left, mut draws) = (lengths.next().unwrap_or(1.0), true);
    let (mut pieces, mut piece) = (Vec::new(), points.first().copied().into_iter().collect::<Vec<_>>());
    for ends in points.windows(2) {
        let [from, to] = [ends[0], ends[1]].map(|(x, y)| [f64::from(x), f64::from(y)]);
        let length = (to[0] - from[0]).hypot(to[1] - from[1]);
        let mut done = 0.0;
        while length - done > left {
            done += left;
            let at = [0, 1].map(|side| (from[side] + (to[side] - from[side]) * done / length).round() as i32);
            piece.push((at[0], at[1]));
            if draws {
                pieces.push(std::mem::take(&mut piece));
            }
            piece = vec![(at[0], at[1])];
            (left, draws) = (lengths.next().unwrap_or(1.0), !draws);
        }
        left -= length - done;
        piece.push(ends[1]);
    }
    if draws {
        pieces.push(piece);
    }
    pieces
}

/// The pixels of a text: how much of each its glyphs cover.
struct Glyphs {
    /// The length of the text in units.
    length: f64,
    width: usize,
    height: usize,
    /// The row of the baseline, and the column of the text's start.
    origin: [f64; 2],
    coverage: Vec<f64>,
}

impl Glyphs {
    /// The pixels of `text` in a font of `size` units.
    fn rasterize(text: &str, size: f64) -> Result<Self, plotters::style::FontError> {
        let line = size * LINE_HEIGHT;
        let font = FontDesc::new(FontFamily::Name(FONT_NAME), line, FontStyle::Normal);
        let style = TextStyle::from(font);
        let (_, (length, _)) = style.layout_box(text)?;
        let margin = line.ceil() as i32;
        let (width, height) = ((length + 2 * margin) as usize, 3 * margin as usize);
        let mut coverage = vec![0.0_f64; width * height];
        let drawn: Result<(), std::convert::Infallible> = style.draw(text, (0, 0), |x, y, colour| {
            let (x, y) = ((x + margin) as usize, (y + margin) as usize);
            if x < width && y < height {
                coverage[y * width + x] = coverage[y * width + x].max(colour.alpha);
            }
            Ok(())
        })?;
        match drawn {
            Ok(()) => {}
            Err(never) => match never {},
        }
        // plotters draws a text with its baseline half of a line below the given point.
        let origin = [f64::from(margin), f64::from(margin) + line / 2.0];
        Ok(Self { length: f64::from(length), width, height, origin, coverage })
    }

    /// The columns and the rows, relative to its point, within which a turned text lies.
    fn bounds(&self, start: f64, [sin, cos]: [f64; 2]) -> [[i32; 2]; 2] {
        let height = self.height as f64 - self.origin[1];
        let corners = [start, start + self.length].map(|x| [[x, -self.origin[1]], [x, height]]);
        let turned = corners.as_flattened().iter().map(|[x, y]| [x * cos - y * sin, x * sin + y * cos]);
        let turned: Vec<_> = turned.collect();
        [0, 1].map(|side| {
            let all = || turned.iter().map(|corner| corner[side]);
            let (least, most) =
                (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
            [least.floor() as i32 - 1, most.ceil() as i32 + 1]
        })
    }

    /// The coverage at a point right of the start of the text and below its baseline.
    fn at(&self, right: f64, below: f64) -> f64 {
        let (x, y) = (right + self.origin[0], below + self.origin[1]);
        let pixel = |x: f64, y: f64| {
            let inside = x >= 0.0 && y >= 0.0 && x < self.width as f64 && y < self.height as f64;
            if inside { self.coverage[y as usize * self.width + x as usize] } else { 0.0 }
        };
        let ([left, top], [u, v]) = ([x.floor(), y.floor()], [x.fract(), y.fract()]);
        let row = |y: f64| pixel(left, y) * (1.0 - u) + pixel(left + 1.0, y) * u;
        row(top) * (1.0 - v) + row(top + 1.0) * v
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn dashes_cover_their_share_of_a_line(length in 1..5000_i32) {
            let pieces = dashed(&[(0, 7), (length / 3, 7), (length, 7)], &[7.0, 3.0], 1.0);
            let covered: i32 = pieces.iter().map(|piece| piece[piece.len() - 1].0 - piece[0].0).sum();
            let whole = length / 10 * 7 + (length % 10).min(7);
            prop_assert_eq!(covered, whole);
        }
    }

    #[test]
    fn a_line_without_dashes_is_one_piece() {
        assert_eq!(dashed(&[(0, 0), (5, 5)], &[], 1.0), [[(0, 0), (5, 5)]]);
    }
}
