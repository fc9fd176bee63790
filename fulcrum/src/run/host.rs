//! This machine: its measurements, its GPU's kernels, models with random weights, and whether a
//! plan is for it.

use crate::error::{Error, OrError, Result};
use crate::pipeline::ResolvedPlan;
use crate::progress::{ProgressEvent, ProgressFn, TaskStage};
use hwprofiles::{DeviceKind, Host, number_ranges, write_atomically};
use kernels::affinity;
use kernels::cuda::Parity;
use microbench::{Depth, MeasureError, Options, RooflineCheck};
use scenarios::Model;
use std::path::{Path, PathBuf};

/// Measures this machine and writes the result to `out`. Until everything is measured, the numbers
/// so far are in a valid host file beside it, with `.partial` behind the name. The file records
/// `date`, `YYYY-MM-DD`.
///
/// # Errors
/// Something cannot be measured, or the file cannot be written.
pub fn measure_host(out: &Path, quick: bool, date: &str, progress: &ProgressFn<'_>) -> Result<Host> {
    let depth = if quick { Depth::Quick } else { Depth::Full };
    let command = if quick { "fulcrum bench --quick" } else { "fulcrum bench" };
    let options = Options { depth, date: date.to_owned(), command: command.to_owned() };
    progress(ProgressEvent::Begin(TaskStage::Measuring));
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    let measured = microbench::measure(
        &options,
        &mut |now| {
            progress(ProgressEvent::Steps { done: now.done as u64, of: now.total as u64 });
            progress(ProgressEvent::Item(now.subject));
        },
        &mut |host| write_atomically(&partial, host.to_yaml()),
    );
    progress(ProgressEvent::End);
    let measured = measured.or_failed()?;
    std::fs::rename(&partial, out).or_failed()?;
    for warning in &measured.warnings {
        progress(ProgressEvent::Warning(&warning.to_string()));
    }
    Ok(measured.host)
}

/// Predicts six numerical kernels from the file of this host and measures them: the plainest proof
/// of a profile.
///
/// # Errors
/// The file cannot be read, lacks a rate or describes another machine, or a kernel is wrong.
pub fn check_roofline(file: &Path, quick: bool, progress: &ProgressFn<'_>) -> Result<RooflineCheck> {
    let name = file.display().to_string();
    let text = hwprofiles::read_text(file).or_input().map_err(|error| error.within(&name))?;
    let host = Host::from_yaml(&text, &name).or_input()?;
    let depth = if quick { Depth::Quick } else { Depth::Full };
    progress(ProgressEvent::Begin(TaskStage::Measuring));
    let checked = microbench::check_roofline(&host, depth, &mut |now| {
        progress(ProgressEvent::Steps { done: now.done as u64, of: now.total as u64 });
        progress(ProgressEvent::Item(now.subject));
    });
    progress(ProgressEvent::End);
    let checked = match checked {
        Err(MeasureError::OtherMachine { .. } | MeasureError::MissingRate(_)) => checked.or_input(),
        _ => checked.or_failed(),
    };
    checked.map_err(|error| error.within(&name))
}

/// Runs the kernels of a forward pass on the GPU, each beside the CPU's: the GPU's name, and how
/// far apart they are.
///
/// # Errors
/// There is no GPU, or it refuses a kernel.
pub fn compare_gpu_kernels() -> Result<(String, Vec<Parity>)> {
    microbench::gpu_kernel_parity().or_input()
}

/// Makes the folder of a model in Hugging Face's form, with random bf16 weights.
///
/// # Errors
/// The folder exists, or cannot be written.
pub fn init_model(model: &Model, folder: &Path, seed: u64) -> Result {
    executor::make_random(model, folder, seed).or_input()?;
    Ok(())
}

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
    let mut sorted: Vec<_> = cores.iter().map(|&core| core as u64).collect();
    sorted.sort_unstable();
    sorted.dedup();
    number_ranges(&sorted)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cores_are_told_as_ranges() {
        assert_eq!(super::ranges(&[8, 0, 1, 2, 3, 10, 11]), "0–3, 8, 10–11");
        assert_eq!(super::ranges(&[]), "");
    }
}
