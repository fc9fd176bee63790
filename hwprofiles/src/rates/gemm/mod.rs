//! Matrix products: from measured points to the time of any shape.
//!
//! A few points of a CPU's team are interpolated as they are ([`between`]); the hundreds that a GPU's benchmark
//! measures are fitted first ([`GemmRates::fit`]), and the [`GemmSurface`] answers.

mod between;
mod facts;
mod fit;
mod mechanism;
mod point;
mod rates;
mod roofline;
mod surface;

pub use facts::{GemmFacts, GemmKernels};
pub use fit::GemmFitError;
pub use point::GemmPoint;
pub use rates::GemmRates;
pub use surface::GemmSurface;
