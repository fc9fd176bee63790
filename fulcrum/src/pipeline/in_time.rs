//! Times that are results, and times at which the clock has ended.

use crate::error::{Error, Result};
use hwprofiles::Seconds;
use sim::SimTime;

/// Refuses a time at which simulated time has ended: it is not how long something takes.
pub(crate) fn require_in_time(time: Seconds) -> Result<()> {
    let end = SimTime::MAX.to_seconds();
    match time < end {
        true => Ok(()),
        false => Err(Error::input(format!(
            "this takes longer than the {end} that simulated time has: a rate of the machine is too low, or the workload too \
             large"
        ))),
    }
}
