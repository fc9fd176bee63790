//! Matrix products: from measured points to the time of any shape.
//!
//! The few points of a CPU's team are interpolated ([`between`]). The hundreds of points that a
//! GPU's benchmark measures are fitted ([`GemmRates::fit`]), and the [`GemmSurface`] gives the
//! times.

mod between;
mod facts;
mod fit;
mod known_times;
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
