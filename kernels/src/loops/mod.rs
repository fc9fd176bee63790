//! The loops that microbenchmarks time, and the rate-limited copy that stands for a bus.

pub(crate) mod frequency;
pub(crate) mod link;
pub mod numeric;
mod parts;
pub mod peak;
pub mod stream;

pub use frequency::dependent_adds;
pub use link::RateLimitedLink;
