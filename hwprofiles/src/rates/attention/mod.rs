//! Attention: from measured points to the time of any shape.
//!
//! A few points of a CPU's team are interpolated as they are ([`between`]); the hundreds that a GPU's benchmark
//! measures are fitted first ([`AttentionRates::fit`]), and the [`AttentionSurface`] answers.

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
