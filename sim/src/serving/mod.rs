//! Serving: requests that come and go, batched continuously, step after step.
//!
//! A [`Replica`] is one engine with one KV cache. It takes [`Request`]s and tells when each was
//! answered ([`ServedRequest`]). Its [`StepPrices`] say how long a step takes. Its
//! [`EngineSettings`] says how many sequences run at once, how large the KV cache is and which
//! request comes first.
//!
//! Between two changes of its batch, every step computes one more token of the same sequences, and
//! the time of a step is a straight line in the tokens that it attends to. Such steps form an
//! arithmetic series, which is simulated at once. Times are whole picoseconds and lines have whole
//! coefficients, so the sum of the series is exactly the sum of its steps.
//!
//! Rooms, each using only those before it: prices, kv, engine, schedule, fleet, metrics, rebalance.

pub(crate) mod capacity_search;
mod engine;
mod fleet;
mod kv;
mod metrics;
mod prices;
mod rebalance;
mod schedule;

pub use engine::{
    AdmissionPolicy, EngineObserver, EngineSettings, FrontEnd, HostTimes, ObservedSteps, RejectReason,
    Request, RequestOutcome, RequestTotals, Reserve, ServedRequest, StateSnapshots, StationTimes,
};
pub use fleet::{
    FleetController, GeneratedRequests, RecordedRun, RecordedRunError, RequestSource, Router, ServeError,
    ShiftedSource, serve, serve_fleet, serve_in_step,
};
pub use kv::{
    Blocks, EngineMemory, KvCapacity, KvCapacityError, KvMemory, KvOffload, KvOffloadError, KvTransfer,
    MemoryShare, NoKvRoom, SequenceBlocks, StateAllocation, kv_blocks,
};
pub use metrics::{
    Account, EngineCount, LatencyStats, RequestCounts, ResourceMeter, ResourceUse, Series, SeriesBucket,
    ServingTimeline, Summary, SummaryCollector, TimelineTooLong,
};
pub use prices::{
    Batch, LayerRanks, LayerRow, LayerTables, LayerTime, LayerTimes, OperatorTime, PlanPrices, PrefillChunk,
    StepLine, StepPrices, TableText,
};
pub use rebalance::{
    Demand, DeviceTimes, ForecastTables, MultiPlanPrices, PlanAlternative, PlanForecast, PlanMove,
    RebalanceRecord, Rebalancer, SwitchablePrices, WallClock,
};
pub use schedule::{Pause, Replica};
