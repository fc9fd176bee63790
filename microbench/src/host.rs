//! A host from its measurements.

use crate::{Error, Measured, Options, Progress, limits, processor};
use hwprofiles::{Dram, Host, Presence, Sourced, WriteError};
use kernels::affinity::available_cores;
use std::path::Path;

pub(crate) fn measure(
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
    save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
) -> Result<Measured, Error> {
    let root = Path::new("/");
    let cpu = processor::processor(root, &available_cores())?;
    let capacity = Sourced::measured(limits::capacity(root)?, &options.date, &options.command, 0.0);
    let host = Host {
        host: processor::name(&cpu),
        cpu,
        dram: Dram { capacity, bandwidth: Vec::new(), latency: None },
        teams: Vec::new(),
        loopback: Presence::Absent,
        gpu: Presence::Absent,
        cxl: Presence::Absent,
    };
    progress(Progress { done: 1, of: 1, what: "the processor" });
    save(&host)?;
    Ok(Measured { host, warnings: Vec::new() })
}
