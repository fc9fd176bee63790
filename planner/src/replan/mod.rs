//! Changes while a plan runs: slower devices, other batches, moved weights.

mod compute_choice;
mod monitor;
mod moves;
mod replanner;

pub use monitor::{Drift, Monitor};
pub use moves::{Moves, moved, moved_sequences, moving_time};
pub use replanner::{Decision, Replanner};
