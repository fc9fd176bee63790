//! A drawing and how it becomes a file: shapes with classes, axes, SVG, PNG.

pub(crate) mod axis;
pub(crate) mod png;
pub(crate) mod svg;
