//! Cost of tasks, programs and placements in time, energy and money.

mod band;
mod cost_model;
mod energy;
mod footprint;
mod least_time;
mod price_list;
mod roofline;
mod serial_chain;
mod sketch;
mod stage_flow;
mod standalone_tasks;
mod step_overlap;

pub use band::Band;
pub use cost_model::{BandwidthUse, CostBound, CostModel, TaskCost, WORTH_SHARING};
pub use energy::{cost, energy};
pub(crate) use footprint::Footprints;
pub use footprint::footprint;
pub use roofline::{Binding, Roofline};
pub use sketch::{Sketch, StepProbe, add_times};
pub use step_overlap::StepOverlap;

pub(crate) use energy::{PowerDraw, energy_of, power, price};
pub(crate) use least_time::{DeviceAlone, least_overlapped};
pub(crate) use price_list::{DeviceNeeds, PriceList, PricedSublayer, SublayerCost};
pub(crate) use serial_chain::SerialChain;
