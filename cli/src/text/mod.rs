//! What people read: results in words, and the terminal.

pub mod formats;
pub mod gpu_fit;
pub mod grid;
pub mod plan;
pub mod printed_answer;
pub mod served_comparison;
pub mod served_day;
pub mod terminal;
