//! A drawing: marks with classes and hover texts. Coordinates are in pixels, y downwards.

use crate::plots::drawing::class::Class;
use hwprofiles::Seconds;

/// A drawing under construction.
#[derive(Debug, Clone)]
pub(crate) struct Drawing {
    width: f64,
    height: f64,
    /// Says what it shows, for readers who do not see it.
    title: String,
    marks: Vec<Mark>,
    time: Option<TimeSpan>,
}

/// Where a drawing shows time: a page can stretch this part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeSpan {
    /// The pixels at which time begins and ends.
    pub x: [f64; 2],
    /// The upper and the lower edge.
    pub y: [f64; 2],
    /// The time between the two.
    pub length: Seconds,
}

/// A shape with its look and its hover text.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub shape: Shape,
    pub class: Class,
    /// Shown when the pointer rests on the mark; nothing where empty.
    pub hover: String,
}

/// What is drawn.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// A rectangle between two corners.
    Rect { corners: [[f64; 2]; 2] },
    /// A line through points.
    Path(Vec<[f64; 2]>),
    /// A closed figure.
    Polygon(Vec<[f64; 2]>),
    /// A circle.
    Circle { centre: [f64; 2], radius: f64 },
    /// A text on its baseline.
    Text(Label),
}

/// A text and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub text: String,
    /// The point of the baseline that `anchor` means.
    pub at: [f64; 2],
    pub anchor: Anchor,
    /// Degrees that the text is turned clockwise around its point.
    pub turn: f64,
}

/// Which part of a text lies on its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: title.to_owned(), marks: Vec::new(), time: None }
    }

    /// Width and height in pixels.
    pub(crate) fn size(&self) -> [f64; 2] {
        [self.width, self.height]
    }

    /// Says what the drawing shows.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// Says where the drawing shows time.
    pub(crate) fn set_time(&mut self, time: TimeSpan) {
        self.time = Some(time);
    }

    /// Where the drawing shows time.
    pub(crate) fn time(&self) -> Option<TimeSpan> {
        self.time
    }

    /// The marks, in the order in which they are drawn.
    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    pub(crate) fn rect(&mut self, class: Class, [x, y]: [f64; 2], [width, height]: [f64; 2], hover: &str) {
        let corners = [[x, y], [x + width.max(0.0), y + height]];
        self.mark(Shape::Rect { corners }, class, hover);
    }

    pub(crate) fn line(&mut self, class: Class, from: [f64; 2], to: [f64; 2]) {
        self.mark(Shape::Path(vec![from, to]), class, "");
    }

    /// A line through points.
    pub(crate) fn path(&mut self, class: Class, points: &[[f64; 2]], hover: &str) {
        self.mark(Shape::Path(points.to_vec()), class, hover);
    }

    /// A closed figure.
    pub(crate) fn polygon(&mut self, class: Class, corners: &[[f64; 2]], hover: &str) {
        self.mark(Shape::Polygon(corners.to_vec()), class, hover);
    }

    pub(crate) fn circle(&mut self, class: Class, centre: [f64; 2], radius: f64, hover: &str) {
        self.mark(Shape::Circle { centre, radius }, class, hover);
    }

    pub(crate) fn text(&mut self, class: Class, at: [f64; 2], anchor: Anchor, text: &str) {
        self.label(class, Label { text: text.to_owned(), at, anchor, turn: 0.0 });
    }

    /// A text that is read upwards, centred on its point.
    pub(crate) fn upright(&mut self, class: Class, at: [f64; 2], text: &str) {
        self.label(class, Label { text: text.to_owned(), at, anchor: Anchor::Middle, turn: -90.0 });
    }

    /// A text above a line, near the line's right end and turned with it.
    pub(crate) fn along(&mut self, class: Class, [from, to]: [[f64; 2]; 2], text: &str) {
        /// Pixels from the end of the line, and above it.
        const OFFSET: [f64; 2] = [-14.0, -5.0];
        let angle = (to[1] - from[1]).atan2(to[0] - from[0]);
        let (sin, cos) = angle.sin_cos();
        let at = [to[0] + OFFSET[0] * cos - OFFSET[1] * sin, to[1] + OFFSET[0] * sin + OFFSET[1] * cos];
        self.label(class, Label { text: text.to_owned(), at, anchor: Anchor::End, turn: angle.to_degrees() });
    }

    /// A marker of a group of points. Groups differ in shape too, for readers who do not see
    /// colours.
    pub(crate) fn marker(&mut self, group: usize, [x, y]: [f64; 2], radius: f64, hover: &str) {
        /// Half the width of a cross's arm, and half of its length.
        const CROSS: [f64; 2] = [0.4, 1.2];
        let class = Class::Marker(group);
        let mut figure = |corners: &[[f64; 2]]| {
            let corners: Vec<_> = corners.iter().map(|[dx, dy]| [x + dx * radius, y + dy * radius]).collect();
            self.polygon(class, &corners, hover);
        };
        let [a, b] = CROSS;
        match group % 6 {
            0 => self.circle(class, [x, y], radius, hover),
            1 => figure(&[[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]),
            2 => figure(&[[0.0, -1.2], [1.1, 0.8], [-1.1, 0.8]]),
            3 => figure(&[[0.0, -1.3], [1.3, 0.0], [0.0, 1.3], [-1.3, 0.0]]),
            4 => figure(&[[0.0, 1.2], [1.1, -0.8], [-1.1, -0.8]]),
            _ => figure(&[
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
            ]),
        }
    }

    fn label(&mut self, class: Class, label: Label) {
        self.mark(Shape::Text(label), class, "");
    }

    fn mark(&mut self, shape: Shape, class: Class, hover: &str) {
        self.marks.push(Mark { shape, class, hover: hover.to_owned() });
    }
}
