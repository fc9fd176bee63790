//! What people read: results in words, and the terminal.

pub mod advice;
pub mod formats;
pub mod gpu_fit;
pub mod grid;
#[cfg(feature = "run")]
pub mod interrupt;
pub mod phase_times;
pub mod plan;
#[cfg(feature = "run")]
pub mod printed_answer;
pub mod replay;
#[cfg(feature = "run")]
pub mod roofline_check;
#[cfg(feature = "run")]
pub mod served_comparison;
pub mod served_day;
pub mod terminal;
#[cfg(feature = "run")]
pub mod verdict;
