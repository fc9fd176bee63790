//! The measurement of a host: all experiments, and those on teams and the loopback.

pub(crate) mod bench;
mod launch;
mod sync;
mod transfer;
