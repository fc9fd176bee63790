//! What we ask: models, operators, workloads, objectives.
//!
//! Rooms, each using only those before it: input, model, load, question, capacity, sweep, published.
#![forbid(unsafe_code)]

mod capacity;
mod input;
mod load;
mod model;
pub mod published;
mod question;
mod sweep;

pub use capacity::currencies::{Currencies, Rate};
pub use capacity::prices::{Assumed, Prices};
pub use capacity::question::{Capacity, MachineOption};
pub use hwprofiles::Phase;
pub use input::document::Document;
pub use input::error::ScenarioError;
pub use input::setting::Setting;
pub use load::arrivals::{Arrivals, Length, Requests, ThinkTime};
pub use load::offered_load::{Load, LoadUnit};
pub use load::request_trace::{MOONCAKE_TOKENS, Recorded, RequestTrace, TraceError};
pub use load::routing::Routing;
pub use load::serving::Serving;
pub use load::shift::{Change, Shift};
pub use load::speculation::Speculation;
pub use load::training::Training;
pub use load::workload::Workload;
pub use model::experts::{Experts, Traffic};
pub use model::gguf::header::{Gguf, GgufTensor};
pub use model::latent_attention::Latent;
pub use model::operators::formats::{WeightClass, WeightFormats};
pub use model::operators::layer::LayerKind;
pub use model::operators::operator::{Buffer, Formats, Operator, Step};
pub use model::operators::sublayer::{ROW_PANEL, Sublayer};
pub use model::operators::tensor_parallel::Undivided;
pub use model::operators::work::{Shape, Work, kv_bytes};
pub use model::sliding_window::Window;
pub use model::transformer::{
    Activation, Architecture, Llama3Scaling, LongRopeScaling, Model, Norm, Positions, YarnScaling,
};
pub use model::wiring::{Block, Wiring};
pub use question::costs::Costs;
pub use question::engine_choice::{EngineChoice, EngineName, Scheduler, SwapChoice};
pub use question::format_choice::{FORMAT_LIMIT, FormatChoice, FormatLists, WeightLists};
pub use question::lookup::{LoadModel, MachineSource};
pub use question::objective::{Objective, Slo};
pub use question::quality::Loss;
pub use question::scenario::{MachineSpec, Reference, ResolvedScenario, Scenario};
pub use sweep::axis::Axis;
pub use sweep::grid::{GRID_LIMIT, Grid, Point};
