//! A drawing as a PNG: painted by plotters' bitmap backend, in the light colours, with an embedded
//! font.

use crate::plots::drawing::class::PAPER;
use crate::plots::drawing::marks::Drawing;
use crate::plots::drawing::surface::{FONT_NAME, Surface, paint};
use hwprofiles::write_atomically;
use plotters::backend::BitMapBackend;
use plotters::style::{FontStyle, register_font};
use png::{BitDepth, ColorType, Compression, Encoder, EncodingError};
use std::path::Path;
use std::sync::LazyLock;

/// A part of DejaVu Sans (`fonts/LICENSE`).
static FONT: &[u8] = include_bytes!("../../../fonts/plots.ttf");

/// Whether the font could be registered. Without it every text of plotters is an error.
static FONT_IS_REGISTERED: LazyLock<bool> =
    LazyLock::new(|| register_font(FONT_NAME, FontStyle::Normal, FONT).is_ok());

/// Pixels of the picture for a pixel of the drawing: readers look closely at pictures in documents.
const SCALE: u32 = 2;
/// Samples along each side of a pixel of the picture: plotters does not smooth every shape.
const SAMPLES: u32 = 2;
/// Samples that a picture may have: 1.5 GB.
const MOST_SAMPLES: u64 = 500_000_000;

impl Surface for BitMapBackend<'_> {
    const UNITS: f64 = (SCALE * SAMPLES) as f64;
}

/// A picture: three bytes for each pixel.
pub(crate) struct Picture {
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Red, green and blue of each pixel, row by row.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Paints a drawing.
    ///
    /// # Errors
    /// Says why the drawing cannot be painted: it is too large, or empty.
    pub(crate) fn paint(drawing: &Drawing) -> Result<Self, String> {
        if !*FONT_IS_REGISTERED {
            return Err("the embedded font is damaged".to_owned());
        }
        let [width, height] = drawing.size().map(|side| (side * f64::from(SCALE)).ceil());
        let samples = width * height * f64::from(SAMPLES * SAMPLES);
        if !(1.0..=MOST_SAMPLES as f64).contains(&samples) {
            return Err(format!("{width} × {height} pixels are too many, or none"));
        }
        let size = (width as u32, height as u32);
        let sampled = (size.0 * SAMPLES, size.1 * SAMPLES);
        let mut samples = [PAPER.0, PAPER.1, PAPER.2].repeat((sampled.0 * sampled.1) as usize);
        paint(drawing, BitMapBackend::with_buffer(&mut samples, sampled)).map_err(|it| it.to_string())?;
        Ok(Self { size, pixels: averaged(&samples, size) })
    }

    /// Writes the picture as a PNG, whole or not at all.
    ///
    /// # Errors
    /// Says why the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let file = self.to_png().map_err(|error| error.to_string())?;
        write_atomically(path, file).map_err(|error| error.to_string())
    }

    /// The bytes of a PNG file.
    fn to_png(&self) -> Result<Vec<u8>, EncodingError> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, self.size.0, self.size.1);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::High);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(file)
    }
}

/// The mean of the samples of each pixel.
fn averaged(samples: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let (side, row) = (SAMPLES as usize, (width * SAMPLES) as usize * 3);
    let mut pixels = vec![0; (width * height) as usize * 3];
    for (pixels, rows) in pixels.chunks_exact_mut(width as usize * 3).zip(samples.chunks_exact(row * side)) {
        for (pixel, column) in pixels.chunks_exact_mut(3).zip(0..) {
            let mut sums = [0_u32; 3];
            for sample in 0..side * side {
                let at = sample / side * row + (column * side + sample % side) * 3;
                for (sum, value) in sums.iter_mut().zip(&rows[at..at + 3]) {
                    *sum += u32::from(*value);
                }
            }
            pixel.copy_from_slice(&sums.map(|sum| (sum / (SAMPLES * SAMPLES)) as u8));
        }
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::drawing::class::Class;
    use crate::plots::drawing::marks::Anchor;

    fn picture(texts: &[&str]) -> Picture {
        let mut drawing = Drawing::new(200.0, 100.0, "a plot");
        drawing.rect(Class::Bar(0), [20.0, 40.0], [60.0, 50.0], "");
        drawing.rect(Class::Hatch, [20.0, 40.0], [60.0, 50.0], "");
        texts.iter().for_each(|text| drawing.text(Class::Text, [10.0, 20.0], Anchor::Start, text));
        Picture::paint(&drawing).expect("a drawing of this size")
    }

    fn pixel(picture: &Picture, [x, y]: [u32; 2]) -> [u8; 3] {
        let start = ((y * picture.size.0 + x) * 3) as usize;
        [0, 1, 2].map(|colour| picture.pixels[start + colour])
    }

    #[test]
    fn a_picture_has_the_size_and_the_light_colours_of_its_drawing() {
        let picture = picture(&[]);
        assert_eq!(picture.size, (400, 200));
        assert_eq!(pixel(&picture, [390, 10]), [255, 255, 255], "the paper");
        let bar: Vec<_> = (50..150).map(|x| pixel(&picture, [x, 150])).collect();
        assert!(bar.contains(&[0x00, 0x72, 0xb2]), "the first colour: {bar:?}");
        assert!(bar.iter().any(|pixel| *pixel != [0x00, 0x72, 0xb2]), "and stripes over it");
    }

    #[test]
    fn texts_are_painted() {
        let dark = |picture: &Picture| {
            let pixels = (0..400).flat_map(|x| (0..60).map(move |y| [x, y]));
            pixels.filter(|&at| pixel(picture, at)[0] < 128).count()
        };
        let [none, one, two, other] = [&[][..], &["TTFT"], &["TTFT × 1.5 µs ≤ η"], &["TPOT"]].map(picture);
        assert_eq!(dark(&none), 0);
        assert!(dark(&one) > 100 && dark(&two) > dark(&one));
        assert!(one.pixels != other.pixels);
        // Every sign that plots use has a shape of its own, not that of a missing glyph.
        let missing = picture(&["\u{4e00}"]);
        for sign in ["×", "·", "–", "−", "≤", "≥", "µ", "→", "…", "²", "σ"] {
            let painted = picture(&[sign]);
            assert!(dark(&painted) > 0 && painted.pixels != missing.pixels, "{sign}");
        }
    }

    #[test]
    fn a_turned_text_stands_upright() {
        let mut drawing = Drawing::new(40.0, 200.0, "a plot");
        drawing.upright(Class::Text, [20.0, 100.0], "predicted");
        let picture = Picture::paint(&drawing).expect("a drawing of this size");
        let dark: Vec<_> = (0..80)
            .flat_map(|x| (0..400).map(move |y| [x, y]))
            .filter(|&at| pixel(&picture, at)[0] < 128)
            .collect();
        let span = |side: usize| {
            let all = || dark.iter().map(|at| at[side]);
            all().max().expect("painted") - all().min().expect("painted")
        };
        assert!(span(1) > 3 * span(0), "{} × {}", span(0), span(1));
    }

    #[test]
    fn a_file_holds_the_pixels_of_its_picture_and_no_draft_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plot.png");
        let picture = picture(&["TTFT"]);
        picture.write(&path).expect("written");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let file = std::fs::read(&path).expect("a file");
        assert!(file.len() < 20_000, "{} bytes for a plot that is mostly paper", file.len());
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("it fits")];
        let found = reader.next_frame(&mut pixels).expect("a picture");
        assert_eq!((found.width, found.height), picture.size);
        assert!(pixels == picture.pixels);
    }

    #[test]
    fn a_drawing_without_pixels_is_refused() {
        assert!(Picture::paint(&Drawing::new(0.0, 10.0, "nothing")).is_err());
        assert!(Picture::paint(&Drawing::new(1e9, 1e9, "too large")).is_err());
    }
}
