//! An engine's settings, the requests that it takes, and the observer that it reports to.

pub(crate) mod front_end;
pub(crate) mod observer;
pub(crate) mod request;
pub(crate) mod settings;

pub use front_end::{FrontEnd, StationTimes};
pub use observer::{EngineObserver, ObservedSteps, RequestOutcome};
pub use request::{RejectReason, Request, RequestTotals, ServedRequest};
pub use scenarios::{Reserve, StateSnapshots};
pub use settings::{AdmissionPolicy, EngineSettings, HostTimes};
