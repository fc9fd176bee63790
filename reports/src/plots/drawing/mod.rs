//! Drawings: shapes with classes, the axes that place them, and their files (SVG and PNG).
//!
//! A plot is described once, as a [`Drawing`](marks::Drawing). [`surface::paint`] draws it on any
//! plotters backend: on [`svg`]'s, which keeps classes and hover texts, and on plotters' bitmap.

pub(crate) mod axis;
pub(crate) mod class;
pub(crate) mod marks;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod png;
pub(crate) mod surface;
pub(crate) mod svg;
