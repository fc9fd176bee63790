//! What a mark looks like. A class is a name in the style sheet and the paint of a bitmap.

use plotters::style::RGBColor;
use std::borrow::Cow;

/// How many colours tell groups apart.
pub(crate) const COLOURS: usize = 6;

/// The size of a text without a class of its own, in pixels.
const TEXT_SIZE: f64 = 13.0;
/// The size of a small text.
const SMALL_TEXT: f64 = 11.0;

/// The light colours of `templates/plots.css`.
const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
const SOFT: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const RULE: RGBColor = RGBColor(0xd5, 0xda, 0xe0);
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
const BAND: RGBColor = RGBColor(0xe8, 0xee, 0xf5);
const GROUPS: [RGBColor; COLOURS] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x8a, 0x64),
    RGBColor(0xa8, 0x55, 0x8a),
    RGBColor(0xb0, 0x7d, 0x00),
    RGBColor(0x6b, 0x72, 0x80),
];

/// Dashes and gaps of the line of each group, in pixels.
const GROUP_DASHES: [&[f64]; COLOURS] =
    [&[], &[7.0, 3.0], &[2.0, 3.0], &[9.0, 3.0, 2.0, 3.0], &[12.0, 4.0], &[4.0, 2.0, 1.0, 2.0]];

/// What a mark stands for, which decides its look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A text.
    Text,
    /// A text that matters less.
    Soft,
    /// A heading.
    Strong,
    /// A small text.
    Tiny,
    /// A small text on a coloured bar.
    Inside,
    /// A line at a tick.
    Grid,
    /// The border of a plot.
    Frame,
    /// A thin line: zero, a spread.
    Axis,
    /// A dashed line: exact agreement, a limit.
    Ideal,
    /// An area around a line or a limit.
    Band,
    /// What is free or unknown.
    Empty,
    /// A thick line: a capacity.
    Limit,
    /// Stripes over a bar.
    Hatch,
    /// A lane that waits.
    Wait,
    /// A bar of a group.
    Bar(usize),
    /// A marker of a group.
    Marker(usize),
    /// A line through the points of a group.
    Curve(usize),
    /// A line from zero to a marker of a group.
    Stem(usize),
}

/// The light look of a class, for surfaces without a style sheet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    /// The colour of its area or text.
    pub fill: Option<RGBColor>,
    /// The colour of its line and the line's width in pixels.
    pub stroke: Option<(RGBColor, f64)>,
    /// Dashes and gaps of the line, in pixels; none for a solid one.
    pub dashes: &'static [f64],
    /// The size of its texts, in pixels.
    pub text_size: f64,
}

impl Class {
    /// The names in the style sheet, separated by spaces.
    pub(crate) fn css(self) -> Cow<'static, str> {
        let group = |name: &str, group: usize| Cow::Owned(format!("{name} c{}", group % COLOURS));
        Cow::Borrowed(match self {
            Self::Text => "",
            Self::Soft => "soft",
            Self::Strong => "strong",
            Self::Tiny => "tiny",
            Self::Inside => "inside",
            Self::Grid => "grid",
            Self::Frame => "frame",
            Self::Axis => "axis",
            Self::Ideal => "ideal",
            Self::Band => "band",
            Self::Empty => "empty",
            Self::Limit => "limit",
            Self::Hatch => "hatch",
            Self::Wait => "wait",
            Self::Bar(index) => return group("bar", index),
            Self::Marker(index) => return group("mark", index),
            Self::Curve(index) => return group("curve", index),
            Self::Stem(index) => return group("stem", index),
        })
    }

    /// The look without a style sheet.
    pub(crate) fn paint(self) -> Paint {
        let area = |fill| Paint { fill: Some(fill), stroke: None, dashes: &[], text_size: TEXT_SIZE };
        let line = |colour, width| Paint {
            fill: None,
            stroke: Some((colour, width)),
            dashes: &[],
            text_size: TEXT_SIZE,
        };
        let small = |fill| Paint { text_size: SMALL_TEXT, ..area(fill) };
        let colour = |group: usize| GROUPS[group % COLOURS];
        match self {
            Self::Text | Self::Strong => area(INK),
            Self::Soft => area(SOFT),
            Self::Tiny => small(SOFT),
            Self::Inside => small(PAPER),
            Self::Grid => line(RULE, 0.6),
            Self::Frame => line(RULE, 1.0),
            Self::Axis => line(SOFT, 1.0),
            Self::Ideal => Paint { dashes: &[5.0, 4.0], ..line(SOFT, 1.0) },
            Self::Band | Self::Empty => area(BAND),
            Self::Limit => line(INK, 2.0),
            Self::Hatch => area(PAPER),
            Self::Wait => Paint { stroke: Some((RULE, 0.5)), ..area(BAND) },
            Self::Bar(group) => area(colour(group)),
            Self::Marker(group) => Paint { stroke: Some((PAPER, 1.0)), ..area(colour(group)) },
            Self::Curve(group) => Paint { dashes: GROUP_DASHES[group % COLOURS], ..line(colour(group), 2.0) },
            Self::Stem(group) => line(colour(group), 2.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::drawing::svg::STYLE;
    use std::collections::BTreeMap;

    /// The declarations that the style sheet makes for an element with these classes.
    fn declared(classes: &str, element: &str) -> BTreeMap<String, String> {
        let rules = &STYLE[STYLE.find(".plot {").expect("rules of plots")..];
        let mut declarations = BTreeMap::new();
        for rule in rules.split('}').filter(|rule| rule.contains('{')) {
            let (selector, body) = rule.split_once('{').expect("filtered");
            let parts = selector.trim().trim_start_matches(".plot").trim();
            let applies = match parts {
                "" => true,
                name if name == element => true,
                _ => parts.split('.').skip(1).all(|it| classes.split(' ').any(|class| class == it)),
            };
            if applies && (parts.is_empty() || parts == element || parts.starts_with('.')) {
                for (key, value) in body.split(';').filter_map(|it| it.split_once(':')) {
                    declarations.insert(key.trim().to_owned(), value.trim().to_owned());
                }
            }
        }
        declarations
    }

    /// The light value of a colour variable.
    fn light(value: &str) -> String {
        let name = value.trim_start_matches("var(").trim_end_matches(')');
        let root = STYLE.split('}').next().expect("variables");
        let found = root.split([';', '{']).filter_map(|it| it.trim().split_once(':'));
        found.into_iter().find(|(key, _)| *key == name).map_or(value, |(_, value)| value.trim()).to_owned()
    }

    fn hex(colour: RGBColor) -> String {
        format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
    }

    fn check(class: Class, element: &str) {
        let (css, paint) = (declared(&class.css(), element), class.paint());
        let value = |key: &str| css.get(key).map(|it| light(it)).filter(|it| it != "none");
        assert_eq!(value("fill"), paint.fill.map(hex), "{class:?}");
        assert_eq!(value("stroke"), paint.stroke.map(|it| hex(it.0)), "{class:?}");
        if let Some((_, width)) = paint.stroke {
            assert_eq!(css.get("stroke-width").map_or(1.0, |it| it.parse().unwrap()), width, "{class:?}");
        }
        let dashes: Vec<f64> = value("stroke-dasharray")
            .iter()
            .flat_map(|it| it.split(' '))
            .map(|it| it.parse().unwrap())
            .collect();
        assert_eq!(dashes, paint.dashes, "{class:?}");
    }

    #[test]
    fn a_bitmap_has_the_light_look_of_the_style_sheet() {
        let text = [Class::Text, Class::Soft, Class::Strong, Class::Tiny, Class::Inside];
        for class in text {
            check(class, "text");
            let small = declared(&class.css(), "text")
                .get("font-size")
                .map_or(TEXT_SIZE, |it| it.trim_end_matches("px").parse().expect("a size in pixels"));
            assert_eq!(small, class.paint().text_size, "{class:?}");
        }
        let plain = [Class::Grid, Class::Frame, Class::Axis, Class::Ideal, Class::Band, Class::Empty];
        let groups = (0..COLOURS)
            .flat_map(|it| [Class::Bar(it), Class::Marker(it), Class::Curve(it), Class::Stem(it)]);
        for class in plain.into_iter().chain([Class::Limit, Class::Wait]).chain(groups) {
            check(class, "path");
        }
    }
}
