//! A drawing as pixels (PNG), in the light colours and with a font of its own: nothing needs to be installed.

use crate::drawing::svg::STYLE;
use crate::results::error::ReportError;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb::Database};
use std::sync::Arc;

/// A part of DejaVu Sans (`fonts/LICENSE`).
const FONT: &[u8] = include_bytes!("../../fonts/plots.ttf");

/// Pixels for each pixel of the drawing: pictures end in documents that are looked at closely.
const SCALE: f32 = 2.0;

/// The PNG of a drawing that [`Svg::standalone`](crate::drawing::svg::Svg::standalone) wrote.
///
/// # Errors
/// What is no drawing, or is too large for a picture.
pub(crate) fn png(drawing: &str) -> Result<Vec<u8>, ReportError> {
    let wrong = |reason: String| ReportError::Picture { reason };
    let mut fonts = Database::new();
    fonts.load_font_data(FONT.to_vec());
    let family = fonts.faces().next().map_or_else(String::new, |face| face.families[0].0.clone());
    let plain = drawing.replace(STYLE, &plain_style(&family));
    let options = Options { fontdb: Arc::new(fonts), font_family: family, ..Options::default() };
    let tree = Tree::from_str(&plain, &options).map_err(|error| wrong(error.to_string()))?;
    let [width, height] =
        [tree.size().width(), tree.size().height()].map(|side| (side * SCALE).ceil() as u32);
    let mut picture = Pixmap::new(width, height)
        .ok_or_else(|| wrong(format!("{width} × {height} pixels are too many, or none")))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
    picture.encode_png().map_err(|error| wrong(error.to_string()))
}

/// The style sheet for who knows neither variables nor media: the light colours, set in `family`.
fn plain_style(family: &str) -> String {
    let light = STYLE.split('}').next().unwrap_or("");
    let colours = light.split([';', '{']).filter_map(|line| line.trim().split_once(':'));
    let rules = STYLE.find(".plot {").map_or(STYLE, |start| &STYLE[start..]);
    let first = rules.find('}').map_or(0, |end| end + 1);
    let font = format!(".plot {{ font-size: 13px; font-family: \"{family}\"; }}{}", &rules[first..]);
    colours.fold(font, |style, (name, value)| style.replace(&format!("var({})", name.trim()), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::svg::{Anchor, Svg};

    fn picture(texts: &[&str]) -> Pixmap {
        let mut svg = Svg::new(200.0, 100.0, "a plot");
        svg.rect("bar c0", [20.0, 40.0], [60.0, 50.0], "");
        svg.rect("hatch", [20.0, 40.0], [60.0, 50.0], "");
        texts.iter().for_each(|text| svg.text("", [10.0, 20.0], Anchor::Start, text));
        Pixmap::decode_png(&png(&svg.standalone()).expect("a drawing")).expect("a PNG")
    }

    fn pixel(picture: &Pixmap, [x, y]: [u32; 2]) -> [u8; 3] {
        let pixel = picture.pixel(x, y).expect("within").demultiply();
        [pixel.red(), pixel.green(), pixel.blue()]
    }

    #[test]
    fn a_picture_has_the_size_and_the_light_colours_of_its_drawing() {
        let picture = picture(&[]);
        assert_eq!([picture.width(), picture.height()], [400, 200]);
        assert_eq!(pixel(&picture, [390, 10]), [255, 255, 255], "the paper");
        let bar: Vec<_> = (50..150).map(|x| pixel(&picture, [x, 150])).collect();
        assert!(bar.contains(&[0x00, 0x72, 0xb2]), "the first colour: {bar:?}");
        assert!(bar.iter().any(|pixel| *pixel != [0x00, 0x72, 0xb2]), "and stripes over it");
    }

    #[test]
    fn texts_are_painted() {
        let inked = |picture: &Pixmap| {
            let pixels = (0..400).flat_map(|x| (0..60).map(move |y| [x, y]));
            pixels.filter(|&at| pixel(picture, at)[0] < 128).count()
        };
        let [none, one, two, other] = [&[][..], &["TTFT"], &["TTFT × 1.5 µs ≤ η"], &["TPOT"]].map(picture);
        assert_eq!(inked(&none), 0);
        assert!(inked(&one) > 100 && inked(&two) > inked(&one));
        assert!(one.data() != other.data());
        // Every sign that plots use has a shape of its own, and not that of what is missing.
        let missing = picture(&["\u{4e00}"]);
        for sign in ["×", "·", "–", "−", "≤", "≥", "µ", "→", "…", "²", "σ"] {
            let painted = picture(&[sign]);
            assert!(inked(&painted) > 0 && painted.data() != missing.data(), "{sign}");
        }
    }

    #[test]
    fn nothing_of_a_style_is_left_that_the_painter_does_not_know() {
        let style = plain_style("A");
        assert!(!style.contains("var(") && !style.contains("@media"), "{style}");
        assert!(style.contains(".plot text { fill: #1b1f24; }"), "{style}");
    }

    #[test]
    fn what_is_no_drawing_is_refused() {
        assert!(png("a text").is_err());
    }
}
