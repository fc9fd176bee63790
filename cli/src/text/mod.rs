//! What people read: results in words, and the terminal.

pub mod grid;
#[cfg(feature = "run")]
pub mod interrupt;
pub mod phase_times;
pub mod plan;
#[cfg(feature = "run")]
pub mod printed_answer;
#[cfg(feature = "run")]
pub mod roofline_check;
#[cfg(feature = "run")]
pub mod served_comparison;
pub mod terminal;
#[cfg(feature = "run")]
pub mod verdict;
