//! Simple rules of engines and other planners, which a plan must beat or follow.

mod fit;
mod flexgen;
mod host_and_accelerator;
mod layer_pattern;
mod lia;
mod moe_lightning;
mod no_rule;
mod offload;
mod parameter_rule;
mod rule;
mod speeds;

pub use no_rule::NoRule;
pub use rule::Rule;

pub(crate) use layer_pattern::layer_pattern;
pub(crate) use offload::Offload;
pub(crate) use parameter_rule::ParameterRule;
