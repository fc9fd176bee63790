//! Several replicas in one time, and the sources of their requests.

pub(crate) mod generated;
mod recorded_run;
pub(crate) mod router;
pub(crate) mod serve;
mod shifted_source;
pub(crate) mod source;

pub use generated::GeneratedRequests;
pub use recorded_run::{RecordedRun, RecordedRunError};
pub use router::Router;
pub use serve::{FleetController, ServeError, serve, serve_fleet, serve_in_step};
pub use shifted_source::ShiftedSource;
pub use source::RequestSource;
