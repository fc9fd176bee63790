//! A plotters backend for SVG that keeps classes, so that a page's style sheet chooses the colours
//! (light, dark, print), texts stay texts, and no font is needed.

use crate::plots::drawing::class::Paint;
use crate::plots::drawing::marks::{Anchor, Drawing, Label, Mark, TimeSpan};
use crate::plots::drawing::surface::{Drawn, Surface, paint};
use plotters::style::RGBColor;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, DrawingBackend, DrawingErrorKind};
use std::convert::Infallible;
use std::fmt::Write;

/// The look of everything that is drawn, light and dark. Pages use it too.
pub(crate) const STYLE: &str = include_str!("../../../templates/plots.css");

/// Stripes over what is streamed. Drawings on one page may all define it, since they define the
/// same.
const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
    patternTransform=\"rotate(45)\"><rect class=\"stripe\" width=\"2\" height=\"6\"/></pattern></defs>\n";

/// Units of the backend for a pixel: coordinates have two decimals.
const UNITS: f64 = 100.0;

impl Drawing {
    /// For a page that brings [`STYLE`] itself.
    pub(crate) fn inline(&self) -> String {
        self.document("", "")
    }

    /// For a file of its own.
    pub(crate) fn standalone(&self) -> String {
        let style =
            format!("<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
        self.document(" xmlns=\"http://www.w3.org/2000/svg\"", &style)
    }

    fn document(&self, attributes: &str, head: &str) -> String {
        let [width, height] = self.size();
        let mut body = String::new();
        let size = [width, height].map(|side| (side * UNITS).ceil() as u32);
        let backend = SvgBackend { body: &mut body, size: (size[0], size[1]), mark: None };
        paint(self, backend).expect("writing to a text cannot fail, and no font is needed");
        let (width, height, title) = (number(width), number(height), escaped(self.title()));
        let time = self.time().map_or(String::new(), |TimeSpan { x, y, length }| {
            let edges = [x[0], x[1], y[0], y[1]].map(number).join(" ");
            format!(" data-time=\"{edges} {:e}\"", length.get())
        });
        format!(
            "<svg{attributes}{time} class=\"plot\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{title}\">\n{head}{HATCH}{body}</svg>\n"
        )
    }
}

/// Writes each mark as one element. The element's class paints its area and its outline.
struct SvgBackend<'a> {
    body: &'a mut String,
    size: (u32, u32),
    /// The class and the hover text of a mark that is not written yet.
    mark: Option<(String, String)>,
}

impl SvgBackend<'_> {
    /// Writes the mark as an element. Further shapes of the same mark (its outline) are in it
    /// already.
    fn element(&mut self, name: &str, place: &str) {
        let Some((class, hover)) = self.mark.take() else { return };
        // Writing to a String cannot fail.
        let _ = match hover.as_str() {
            "" => writeln!(self.body, r#"<{name} class="{class}" {place}/>"#),
            _ => {
                let hover = escaped(&hover);
                writeln!(self.body, r#"<{name} class="{class}" {place}><title>{hover}</title></{name}>"#)
            }
        };
    }

    fn rect(&mut self, from: BackendCoord, to: BackendCoord) {
        let [x, y, width, height] = [from.0, from.1, to.0 - from.0, to.1 - from.1].map(coordinate);
        self.element("rect", &format!(r#"x="{x}" y="{y}" width="{width}" height="{height}""#));
    }
}

impl Surface for SvgBackend<'_> {
    const UNITS: f64 = UNITS;

    fn begin(&mut self, mark: &Mark) {
        self.mark = Some((mark.class.css().into_owned(), mark.hover.clone()));
    }

    fn polyline(&mut self, points: &[BackendCoord], _: &Paint) -> Drawn<Self> {
        let points: Vec<_> =
            points.iter().map(|(x, y)| format!("{} {}", coordinate(*x), coordinate(*y))).collect();
        self.element("path", &format!(r#"d="M{}""#, points.join("L")));
        Ok(())
    }

    fn stripes(&mut self, [from, to]: [BackendCoord; 2], _: RGBColor) -> Drawn<Self> {
        self.rect(from, to);
        Ok(())
    }

    fn label(&mut self, label: &Label, (x, y): BackendCoord, _: &Paint) -> Drawn<Self> {
        let Some((class, _)) = self.mark.take() else { return Ok(()) };
        let anchor = match label.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (coordinate(x), coordinate(y), escaped(&label.text));
        let turn = match label.turn {
            0.0 => String::new(),
            degrees => format!(r#" transform="rotate({} {x} {y})""#, number(degrees)),
        };
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}"{turn}>{text}</text>"#
        );
        Ok(())
    }
}

impl DrawingBackend for SvgBackend<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, _: BackendColor) -> Result<(), DrawingErrorKind<Infallible>> {
        self.rect(at, (at.0 + 1, at.1 + 1));
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        _: &S,
        _: bool,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.rect(upper_left, bottom_right);
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        (x, y): BackendCoord,
        radius: u32,
        _: &S,
        _: bool,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let (x, y, radius) = (coordinate(x), coordinate(y), number(f64::from(radius) / UNITS));
        self.element("circle", &format!(r#"cx="{x}" cy="{y}" r="{radius}""#));
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        _: &S,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let corners: Vec<_> =
            corners.into_iter().map(|(x, y)| format!("{},{}", coordinate(x), coordinate(y))).collect();
        self.element("polygon", &format!(r#"points="{}""#, corners.join(" ")));
        Ok(())
    }
}

/// A coordinate of the backend in pixels.
fn coordinate(units: i32) -> String {
    number(f64::from(units) / UNITS)
}

/// A number with at most two decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text as markup. Control characters, which XML does not allow, become spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            c if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::drawing::class::Class;

    #[test]
    fn texts_are_escaped_wherever_they_stand() {
        let mut drawing = Drawing::new(10.0, 10.0, "<a> & \"b\"");
        drawing.text(Class::Soft, [0.0, 0.0], Anchor::Start, "<script>");
        drawing.rect(Class::Bar(0), [0.0, 0.0], [1.0, 1.0], "</title><script>");
        let text = drawing.inline();
        assert!(!text.contains("<script") && text.matches("</title>").count() == 1, "{text}");
        assert!(text.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{text}");
    }

    #[test]
    fn coordinates_have_no_more_digits_than_a_screen_shows() {
        assert_eq!([1.0, 0.5, 1.0 / 3.0, -2.004, 100.0].map(number), ["1", "0.5", "0.33", "-2", "100"]);
    }

    #[test]
    fn a_mark_is_one_element_with_its_class_and_its_hover_text() {
        let mut drawing = Drawing::new(10.0, 10.0, "a plot");
        drawing.rect(Class::Wait, [0.5, 1.0], [2.0, 3.0], "waits");
        drawing.circle(Class::Marker(7), [5.0, 5.0], 2.5, "");
        drawing.upright(Class::Text, [1.0, 9.0], "up");
        let text = drawing.inline();
        for element in [
            r#"<rect class="wait" x="0.5" y="1" width="2" height="3"><title>waits</title></rect>"#,
            r#"<circle class="mark c1" cx="5" cy="5" r="2.5"/>"#,
            r#"<text class="" x="1" y="9" text-anchor="middle" transform="rotate(-90 1 9)">up</text>"#,
        ] {
            assert_eq!(text.matches(element).count(), 1, "{element} in {text}");
        }
        assert_eq!(text.lines().count(), 6);
    }
}
