//! A plan explained: what binds it, where another device would be better, and what more of each resource would bring.

mod binding;
mod break_even;
mod explanation;
mod larger_machine;
mod text;
mod worth;

pub use binding::{Busy, PhaseBinding};
pub use break_even::{Axis, BreakEven, Scope, Turn};
pub use explanation::{Explanation, Filled, explain};
pub use worth::Worth;
