//! What a run is made of, checked before anything is allocated.

mod gpu_limits;
pub(crate) mod run_setup;
