//! What engines and other planners do: rules that the planner has to beat, or else follows.

mod fit;
mod flexgen;
mod host_and_accelerator;
mod lia;
mod moe_lightning;
mod no_rule;
mod rule;
mod speeds;

pub use no_rule::NoRule;
pub use rule::Rule;
