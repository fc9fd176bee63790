//! Attention: from measured points to the time of any shape.
//!
//! The few points of a CPU's team are interpolated ([`between`]). The hundreds of points that a
//! GPU's benchmark measures are fitted ([`AttentionRates::fit`]), and the [`AttentionSurface`]
//! gives the times.

mod between;
mod facts;
mod fit;
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
