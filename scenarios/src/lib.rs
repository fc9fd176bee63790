//! What Fulcrum is asked: models, operators and their work, workloads, objectives.
//!
//! Rooms, each using only those before it: input, model, load, question, capacity, sweep,
//! published.
//!
//! A scenario's file passes through three shapes. A [`Document`] is the untyped YAML, in which
//! settings of the command line are applied. A [`Scenario`] is what the file says, typed. A
//! [`ResolvedScenario`] has the machine and the model looked up; it is everything that a plan
//! depends on.
#![forbid(unsafe_code)]

mod capacity;
mod input;
mod load;
mod model;
pub mod published;
mod question;
mod sweep;

pub use capacity::currencies::Currencies;
pub use capacity::market_prices::{Assumed, MarketPrices};
pub use capacity::question::{CapacityQuestion, MachineOption};
pub use hwprofiles::Phase;
pub use input::document::Document;
pub use input::error::{RequestTraceError, ScenarioError};
pub use input::setting::Setting;
pub use load::arrivals::{Arrivals, Length, Requests, ThinkTime};
pub use load::offered_load::{LoadUnit, OfferedLoad};
pub use load::request_trace::{MOONCAKE_TOKENS, RecordedRequest, RequestTrace};
pub use load::routing::Routing;
pub use load::serving::{EarlierPrompts, Serving};
pub use load::shift::{Shift, ShiftChange};
pub use load::speculation::{MTP_MODULE, Speculation, SpeculationChoice};
pub use load::token_count::token_count;
pub use load::training::Training;
pub use load::workload::Workload;
pub use load::workload_kind::WorkloadKind;
pub use model::architecture::{Activation, Architecture, Norm};
pub use model::config::repositories::GgufRepository;
pub use model::experts::{ExpertTraffic, Experts, RouterScoring};
pub use model::formats::file_type::GgufFileType;
pub use model::formats::published::PublishedFormats;
pub use model::formats::weight_format::WeightFormat;
pub use model::gguf::header::{Gguf, GgufTensor};
pub use model::gguf::tensor_names::NamedTensor;
pub use model::latent_attention::LatentAttention;
pub use model::mixer::{CompressedAttention, Mixer, SparseIndex};
pub use model::operators::activation_buffer::ActivationBuffer;
pub use model::operators::cache::kv_bytes;
pub use model::operators::formats::{Formats, WeightClass, WeightFormats};
pub use model::operators::layer::{LayerBlocks, LayerKind};
pub use model::operators::operator::Operator;
pub use model::operators::step::Step;
pub use model::operators::sublayer::Sublayer;
pub use model::operators::tensor_parallel::IndivisibleModel;
pub use model::operators::tensors::ROW_PANEL;
pub use model::operators::work::{GemmChain, Shape, Work};
pub use model::positions::{Llama3Scaling, LongRopeScaling, Positions, YarnScaling};
pub use model::recurrence::Recurrence;
pub use model::sliding_window::SlidingWindow;
pub use model::transformer::LayerShapes;
pub use model::transformer::Model;
pub use model::wiring::{BlockOrder, NgramEmbedding, QueryGrowth, Wiring};
pub use question::costs::Costs;
pub use question::engine_choice::{EngineChoice, Scheduler, SwapChoice};
pub use question::engine_profile::{
    EngineProfile, FrontEndStation, GpuSettings, Reserve, ServingDefaults, StatePool, StateSnapshots,
};
pub use question::format_choice::{FormatChoice, FormatLists, WeightChoice, WeightLists};
pub use question::group_choice::GroupChoice;
pub use question::keys::{SCENARIO_KEYS, ScenarioKey};
pub use question::lookup::{Catalog, FileCatalog, MachineSource, MachineSpec, Reference};
pub use question::objective::{Objective, Slo};
pub use question::placement_choice::{CpuMoe, OffloadOptions, PlacementChoice, TensorOverride};
pub use question::quality_loss::QualityLoss;
pub use question::requirements::Requirements;
pub use question::resolved::ResolvedScenario;
pub use question::scenario::Scenario;
pub use question::schema::scenario_schema;
pub use sweep::axis::SweepAxis;
pub use sweep::grid::{GRID_LIMIT, Grid, GridPoint};
