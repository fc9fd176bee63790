//! A stretch of simulated time, written `60s..70s`.

use hwprofiles::Seconds;
use sim::{SimTime, Tick};
use std::ops::Range;
use std::str::FromStr;

/// From one time until a later one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeWindow {
    from: Seconds,
    until: Seconds,
}

impl TimeWindow {
    /// The window as the simulator counts time.
    pub(crate) fn sim_times(self) -> Range<SimTime> {
        let sim_time = |time| SimTime::rounding_up(time, Tick::Picosecond);
        sim_time(self.from)..sim_time(self.until)
    }
}

impl FromStr for TimeWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("'{text}' is no window: write two times like 60s..70s");
        let (from, until) = text.split_once("..").ok_or_else(wanted)?;
        let time =
            |text: &str| text.trim().parse::<Seconds>().map_err(|error| format!("{}: {error}", wanted()));
        let window = Self { from: time(from)?, until: time(until)? };
        match Seconds::ZERO <= window.from && window.from < window.until {
            true => Ok(window),
            false => Err(format!("{}, the later one last", wanted())),
        }
    }
}
