//! TODO rates/fit/reading.rs

use crate::rates::estimate::Bound;

/// What a surface says of a shape, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SurfaceReading {
    pub time: f64,
    /// Half the width of the 80 % band, as a logarithm.
    pub spread: f64,
    pub bound: Bound,
    /// Whether the shape lies inside the measured region.
    pub inside: bool,
}
