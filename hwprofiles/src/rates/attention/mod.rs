//! Attention: from measured points to the time of any shape.
//!
//! The few points of a CPU's team are interpolated ([`between`]), and so is the [`grid`] of points
//! that `fulcrum bench` measures of a GPU. The hundreds of points that a benchmark of an engine
//! measures are fitted ([`AttentionRates::fit`]), and the [`AttentionSurface`] gives the times.

mod between;
mod facts;
mod fit;
mod grid;
mod mechanism;
mod mixed;
mod point;
mod rates;
mod shape;
mod surface;

pub use facts::{AttentionFacts, AttentionKernels};
pub use fit::AttentionFitError;
pub use mixed::MixedPoint;
pub use point::AttentionPoint;
pub use rates::AttentionRates;
pub use shape::{AttentionShape, Phase};
pub use surface::AttentionSurface;
