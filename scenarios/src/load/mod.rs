//! What a model has to do: static batches, requests that come and go, training steps.

pub(crate) mod arrivals;
pub(crate) mod offered_load;
pub(crate) mod request_trace;
pub(crate) mod routing;
pub(crate) mod serving;
pub(crate) mod shift;
pub(crate) mod speculation;
pub(crate) mod token_count;
pub(crate) mod training;
pub(crate) mod workload;
pub(crate) mod workload_kind;
