//! Whether a plan is for the machine that is to run it.

use crate::error::{Error, Result};
use crate::pipeline::ResolvedPlan;
use crate::progress::{ProgressEvent, ProgressFn};
use hwprofiles::DeviceKind;
use kernels::affinity;

/// Refuses a plan for cores that this process does not have. With `anyway` such a plan runs on
/// those that there are, and `progress` hears what differs.
///
/// # Errors
/// The plan is for another machine.
pub fn require_this_host(planned: &ResolvedPlan, anyway: bool, progress: &ProgressFn<'_>) -> Result {
    let available = affinity::available_cores();
    let differences: Vec<_> = planned
        .machine
        .devices
        .iter()
        .filter(|device| device.kind != DeviceKind::Gpu)
        .filter(|device| device.cores.iter().any(|core| !available.contains(core)))
        .map(|device| {
            let (name, wanted, here) = (&device.name, ranges(&device.cores), ranges(&available));
            format!("device '{name}' has cores {wanted}, and this process may use {here}")
        })
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    let (machine, differences) = (&planned.machine.name, differences.join("; "));
    if !anyway {
        return Err(Error::input(format!(
            "the plan is for another machine, '{machine}': {differences}. Plan for this one (`fulcrum bench`, then \
             machine: this), or run it all the same with --anyway"
        )));
    }
    let note = format!(
        "the plan is for another machine, '{machine}': {differences}; its predictions are not of this one"
    );
    progress(ProgressEvent::Warning(&note));
    Ok(())
}

/// Cores as ranges: `0–3, 8`.
fn ranges(cores: &[usize]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|core, next| core + 1 == *next);
    let text = |run: &[usize]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}–{last}"),
        [] => String::new(),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn cores_are_told_as_ranges() {
        assert_eq!(super::ranges(&[8, 0, 1, 2, 3, 10, 11]), "0–3, 8, 10–11");
        assert_eq!(super::ranges(&[]), "");
    }
}
