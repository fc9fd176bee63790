//! Experiments on memory: bandwidth, latency, and what pages, load and distance do to them.

pub(crate) mod bandwidth;
pub(crate) mod cxl;
pub(crate) mod latency;
pub(crate) mod loaded;
pub(crate) mod mixes;
pub(crate) mod numa;
pub(crate) mod pages;
