//! What a fitted surface says of a shape.

use crate::rates::estimate::Bound;

/// A time from a fitted surface, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SurfaceReading {
    pub time: f64,
    /// Half the width of the 80 % band, as a logarithm.
    pub spread: f64,
    pub bound: Bound,
    /// Whether the shape lies inside the measured region.
    pub inside: bool,
}
