//! A replayed run in words.

use super::replay::{LatencyErrors, LatencySummary, Replay};
use super::step_difference::{LayerDifference, StepDifference};
use hwprofiles::Seconds;
use std::fmt;

impl fmt::Display for Replay {
    /// The replay as a screen of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replay = self;
        writeln!(f, "{}", replay.heading)?;
        writeln!(f, "steps priced by {}", replay.prices)?;
        if replay.rejected > 0 {
            writeln!(f, "{} requests are rejected: the engine has no room for them", replay.rejected)?;
        }
        writeln!(f, "  {:<22} {:>11} {:>11} {:>11} {:>11}", "", "mean", "p50", "p90", "p99")?;
        replay.errors.iter().try_for_each(|errors| write_latency(f, errors))?;
        replay.differences.iter().try_for_each(|step| write_difference(f, step))
    }
}

fn write_latency(f: &mut fmt::Formatter<'_>, errors: &LatencyErrors) -> fmt::Result {
    let time = |value: f64| Seconds::new(value).to_string();
    let signed = |value: f64| format!("{:+.1} %", 100.0 * value);
    let size = |value: f64| format!("{:.1} %", 100.0 * value);
    let latency = errors.latency;
    write_row(f, &format!("{latency} recorded"), errors.recorded, time)?;
    write_row(f, "     replayed", errors.replayed, time)?;
    write_row(f, "     error", errors.error, signed)?;
    write_row(f, "     |error| by request", errors.request_error, size)
}

fn write_row(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    spread: LatencySummary,
    shown: impl Fn(f64) -> String,
) -> fmt::Result {
    let [mean, p50, p90, p99] = [spread.mean, spread.p50, spread.p90, spread.p99].map(shown);
    writeln!(f, "  {name:<22} {mean:>11} {p50:>11} {p90:>11} {p99:>11}")
}

fn write_difference(f: &mut fmt::Formatter<'_>, step: &StepDifference) -> fmt::Result {
    writeln!(f, "\n{}:", step.step)?;
    writeln!(f, "  {:<18} {:>12} {:>12} {:>12}", "", "layer times", "profile", "difference")?;
    for LayerDifference { layer, measured, profile } in step.layers.iter().chain([&step.total()]) {
        let apart = format!("{:+.0} us", 1e6 * (profile.get() - measured.get()));
        let [measured, profile] = [measured, profile].map(Seconds::to_string);
        writeln!(f, "  {layer:<18} {measured:>12} {profile:>12} {apart:>12}")?;
    }
    Ok(())
}
