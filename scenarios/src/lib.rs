//! What we ask: models, operators, workloads, objectives.
#![forbid(unsafe_code)]

mod model;
mod operator;

pub use model::{Activation, Architecture, Llama3Scaling, Model, Norm, Positions};
pub use operator::{Buffer, Formats, Operator, Phase, Shape, Step, Sublayer, Work, kv_bytes};
