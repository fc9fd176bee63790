//! What we ask: models, operators, workloads, objectives.
#![forbid(unsafe_code)]

mod config;
mod error;
mod model;
mod operator;
mod parameters;
mod preset;
mod section;
mod write_config;

pub use error::ScenarioError;
pub use model::{Activation, Architecture, Llama3Scaling, Model, Norm, Positions};
pub use operator::{Buffer, Formats, Operator, Phase, Shape, Step, Sublayer, Work, kv_bytes};
