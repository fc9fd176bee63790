//! This machine: its measurements, its GPU's kernels, and models with random weights.

use crate::error::{OrError, Result};
use crate::progress::{ProgressEvent, ProgressFn, TaskStage};
use hwprofiles::{Host, write_atomically};
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
