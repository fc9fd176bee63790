//! What we ask: models, operators, workloads, objectives.
#![forbid(unsafe_code)]

mod config;
mod document;
mod error;
mod grid;
mod model;
mod objective;
mod operator;
mod parameters;
mod preset;
mod scenario;
mod section;
mod setting;
mod source;
mod sublayer;
mod workload;
mod write_config;

pub use document::Document;
pub use error::ScenarioError;
pub use grid::{GRID_LIMIT, Grid, Point};
pub use hwprofiles::Phase;
pub use model::{Activation, Architecture, Llama3Scaling, Model, Norm, Positions};
pub use objective::{Objective, Slo};
pub use operator::{Buffer, Formats, Operator, Shape, Step, Work, kv_bytes};
pub use scenario::{MachineSpec, Reference, ResolvedScenario, Scenario};
pub use setting::Setting;
pub use source::MachineSource;
pub use sublayer::Sublayer;
pub use workload::Workload;
