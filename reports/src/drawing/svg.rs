//! A drawing: shapes, lines and texts with classes that a style sheet colours. Coordinates are in pixels, y downwards.
//!
//! Written by hand because a plot on a page must follow the page's colours (light, dark, print), keep its texts
//! as text and need no font: what plotting crates write has its colours and sizes built in.

use std::fmt::Write;

/// Colours of everything that is drawn, for light and dark. The page uses it too.
pub(crate) const STYLE: &str = include_str!("../../templates/plots.css");

/// A drawing in the making.
#[derive(Debug, Clone)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    /// What it shows, for readers who do not see it.
    title: String,
    body: String,
}

/// Where a text stands in relation to its point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: title.to_owned(), body: String::new() }
    }

    pub(crate) fn rect(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2], hover: &str) {
        let place =
            format!(r#"x="{}" y="{}" width="{}" height="{}""#, n(x), n(y), n(width.max(0.0)), n(height));
        self.element("rect", class, &place, hover);
    }

    pub(crate) fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.element("path", class, &format!(r#"d="M{} {}L{} {}""#, n(x1), n(y1), n(x2), n(y2)), "");
    }

    /// A line through points.
    pub(crate) fn path(&mut self, class: &str, points: &[[f64; 2]], hover: &str) {
        let points: Vec<_> = points.iter().map(|[x, y]| format!("{} {}", n(*x), n(*y))).collect();
        self.element("path", class, &format!(r#"d="M{}""#, points.join("L")), hover);
    }

    /// A closed figure.
    pub(crate) fn polygon(&mut self, class: &str, corners: &[[f64; 2]], hover: &str) {
        let corners: Vec<_> = corners.iter().map(|[x, y]| format!("{},{}", n(*x), n(*y))).collect();
        self.element("polygon", class, &format!(r#"points="{}""#, corners.join(" ")), hover);
    }

    pub(crate) fn circle(&mut self, class: &str, [x, y]: [f64; 2], radius: f64, hover: &str) {
        self.element("circle", class, &format!(r#"cx="{}" cy="{}" r="{}""#, n(x), n(y), n(radius)), hover);
    }

    pub(crate) fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (n(x), n(y), escaped(text));
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// A text turned to be read upwards, centred on its point.
    pub(crate) fn upright(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        let (x, y, text) = (n(x), n(y), escaped(text));
        let turn = format!("rotate(-90 {x} {y})");
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="middle" transform="{turn}">{text}</text>"#
        );
    }

    /// A text above a line, near its right end, turned with it.
    pub(crate) fn along(&mut self, class: &str, [from, to]: [[f64; 2]; 2], text: &str) {
        let turn = (to[1] - from[1]).atan2(to[0] - from[0]).to_degrees();
        let (x, y, text) = (n(to[0]), n(to[1]), escaped(text));
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" dx="-14" dy="-5" text-anchor="end" transform="rotate({} {x} {y})">{text}</text>"#,
            n(turn)
        );
    }

    /// One of the markers by which groups of points are told apart, also without colours.
    pub(crate) fn marker(&mut self, group: usize, [x, y]: [f64; 2], radius: f64, hover: &str) {
        let class = format!("mark c{}", group % COLOURS);
        let around = |points: &[[f64; 2]]| -> Vec<[f64; 2]> {
            points.iter().map(|[dx, dy]| [x + dx * radius, y + dy * radius]).collect()
        };
        match group % 6 {
            0 => self.circle(&class, [x, y], radius, hover),
            1 => self.polygon(&class, &around(&[[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]), hover),
            2 => self.polygon(&class, &around(&[[0.0, -1.2], [1.1, 0.8], [-1.1, 0.8]]), hover),
            3 => self.polygon(&class, &around(&[[0.0, -1.3], [1.3, 0.0], [0.0, 1.3], [-1.3, 0.0]]), hover),
            4 => self.polygon(&class, &around(&[[0.0, 1.2], [1.1, -0.8], [-1.1, -0.8]]), hover),
            _ => {
                let (a, b) = (0.4, 1.2);
                let cross = [
                    [-a, -b],
                    [a, -b],
                    [a, -a],
                    [b, -a],
                    [b, a],
                    [a, a],
                    [a, b],
                    [-a, b],
                    [-a, a],
                    [-b, a],
                    [-b, -a],
                    [-a, -a],
                ];
                self.polygon(&class, &around(&cross), hover);
            }
        }
    }

    /// What it shows.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

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
        let (width, height, title) = (n(self.width), n(self.height), escaped(&self.title));
        format!(
            "<svg{attributes} class=\"plot\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{title}\">\n{head}{HATCH}{}</svg>\n",
            self.body
        )
    }

    fn element(&mut self, name: &str, class: &str, place: &str, hover: &str) {
        // Writing to a String cannot fail.
        let _ = match hover {
            "" => writeln!(self.body, r#"<{name} class="{class}" {place}/>"#),
            _ => {
                let hover = escaped(hover);
                writeln!(self.body, r#"<{name} class="{class}" {place}><title>{hover}</title></{name}>"#)
            }
        };
    }
}

/// How many colours there are: classes `c0`, `c1`, …
pub(crate) const COLOURS: usize = 6;

/// Stripes over what is streamed; drawings on one page may all define it, for they define it alike.
const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
    patternTransform=\"rotate(45)\"><rect class=\"stripe\" width=\"2\" height=\"6\"/></pattern></defs>\n";

/// A coordinate with at most two decimals.
fn n(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text as markup. Control characters, which XML does not allow, become spaces.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_wherever_they_stand() {
        let mut svg = Svg::new(10.0, 10.0, "<a> & \"b\"");
        svg.text("label", [0.0, 0.0], Anchor::Start, "<script>");
        svg.rect("bar", [0.0, 0.0], [1.0, 1.0], "</title><script>");
        let text = svg.inline();
        assert!(!text.contains("<script") && text.matches("</title>").count() == 1, "{text}");
        assert!(text.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{text}");
    }

    #[test]
    fn coordinates_have_no_more_digits_than_a_screen_shows() {
        assert_eq!([1.0, 0.5, 1.0 / 3.0, -2.004, 100.0].map(n), ["1", "0.5", "0.33", "-2", "100"]);
    }
}
