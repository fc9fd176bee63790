//! Which memory holds and which device computes each sublayer, by index and by name.

mod identical_gpus;
mod layer_group;
mod layer_runs;
mod named_slices;
mod phase_placement;
mod pipelining;
mod plan_error;
mod slices;
mod sublayer_home;
mod tensor_parallel;
mod variant;

pub use layer_group::LayerGroup;
pub use layer_runs::LayerRun;
pub use named_slices::{NamedSlice, NamedSlices};
pub use phase_placement::PhasePlacement;
pub use pipelining::Pipelining;
pub use plan_error::PlanError;
pub use slices::{LayerPlacement, LayerSlices, Placement, ROW_PANEL, Slice, Slices, whole_slice};
pub use variant::Variant;

pub(crate) use identical_gpus::IdenticalGpus;
pub(crate) use layer_group::{named, placement_of};
pub(crate) use slices::{PlacementView, split_row};
pub(crate) use sublayer_home::{Home, mixes_stripes};
pub(crate) use tensor_parallel::{ModelShare, combine_time};
