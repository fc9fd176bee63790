//! An explanation of a plan: its limits, break-evens, and the gain of more resources.

mod binding;
mod break_even;
mod brief;
mod explanation;
mod larger_machine;
mod text;
mod worth;

pub use binding::{Busy, PhaseBinding};
pub use break_even::{Axis, BreakEven, Scope, TurningPoint};
pub use brief::Brief;
pub use explanation::{Explanation, MemoryFill, explain};
pub use worth::Worth;
