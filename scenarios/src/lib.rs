//! What we ask: models, operators, workloads, objectives.
#![forbid(unsafe_code)]

mod config;
mod config_experts;
mod costs;
mod document;
mod error;
mod experts;
mod family;
mod format_choice;
mod grid;
mod latent;
mod layer;
mod model;
mod objective;
mod operator;
mod parameters;
mod preset;
mod quality;
mod scenario;
mod section;
mod setting;
mod source;
mod sublayer;
mod work;
mod workload;
mod write_config;

pub use costs::Costs;
pub use document::Document;
pub use error::ScenarioError;
pub use experts::{Experts, Traffic};
pub use format_choice::{FormatChoice, FormatLists};
pub use grid::{GRID_LIMIT, Grid, Point};
pub use hwprofiles::Phase;
pub use latent::Latent;
pub use layer::LayerKind;
pub use model::{Activation, Architecture, Llama3Scaling, Model, Norm, Positions, YarnScaling};
pub use objective::{Objective, Slo};
pub use operator::{Buffer, Formats, Operator, Step};
pub use quality::Loss;
pub use scenario::{MachineSpec, Reference, ResolvedScenario, Scenario};
pub use setting::Setting;
pub use source::MachineSource;
pub use sublayer::{ROW_PANEL, Sublayer};
pub use work::{Shape, Work, kv_bytes};
pub use workload::Workload;
