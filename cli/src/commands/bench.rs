//! `fulcrum bench`

use crate::exit::{Failure, Outcome, Sort};
use crate::terminal::{out, outln};
use crate::{inputs, terminal};
use anyhow::{Context, anyhow};
use hwprofiles::{Changes, Host, Parts, write_atomically};
use microbench::{Depth, Options};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Measure this machine: memory, matrix products, attention, threads, the loopback's link, and the GPU
/// where there is one. Or compare two measurements.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to write the host's file; without it, where `this` finds it.
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Half a minute instead of about five: fewer shapes, fewer repeats.
    #[arg(long)]
    quick: bool,
    /// Measure nothing: show what changed from one host's file to another's, the largest change first.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["out", "quick"])]
    compare: Option<Vec<PathBuf>>,
    /// Measure nothing: run the kernels of a forward pass on the GPU, each beside the CPU's.
    #[arg(long, conflicts_with_all = ["out", "quick", "compare"])]
    gpu_kernels: bool,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    if let Some([a, b]) = arguments.compare.as_deref() {
        let changes = Changes::between(&read(a)?, &read(b)?);
        match json {
            true => outln!("{}", serde_json::to_string_pretty(&changes).or_failed()?),
            false => out!("{changes}"),
        }
        return Ok(());
    }
    if arguments.gpu_kernels {
        return kernels(json);
    }
    let out = arguments.out.unwrap_or_else(inputs::this_host);
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder).or_input()?;
    }
    let host = measure(&out, arguments.quick)?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&host).or_failed()?);
    } else {
        outln!("{}", Parts::of(host.clone()).with_own_gpu().machine(&host.host).or_failed()?);
        outln!("{host}");
        outln!("written to {}", out.display());
    }
    Ok(())
}

/// Tells how far each of the GPU's kernels is from the CPU's.
fn kernels(json: bool) -> Outcome {
    let (gpu, found) = microbench::gpu_kernels().or_input()?;
    let wrong: Vec<_> = found.iter().filter(|parity| !parity.holds()).map(|parity| &*parity.what).collect();
    if json {
        let found: Vec<_> = found
            .iter()
            .map(|parity| json!({"what": parity.what, "share_of_tolerance": parity.share.min(f32::MAX)}))
            .collect();
        outln!("{}", json!({"gpu": gpu, "kernels": found}));
    } else {
        for parity in &found {
            outln!("{:6.3} of what rounding allows: {}", parity.share, parity.what);
        }
        outln!("{gpu}: {} of {} agree with the CPU's", found.len() - wrong.len(), found.len());
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(anyhow!("not as the CPU's: {}", wrong.join("; ")))),
    }
}

fn read(file: &Path) -> Outcome<Host> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| name.clone()).or_input()?;
    Host::from_yaml(&text, &name).or_input()
}

/// Measures this machine into `out`. What is known so far is in a valid host file beside it, `….partial`, until all is.
pub fn measure(out: &Path, quick: bool) -> Outcome<Host> {
    let depth = if quick { Depth::Quick } else { Depth::Full };
    let command = if quick { "fulcrum bench --quick" } else { "fulcrum bench" };
    let options = Options { depth, date: terminal::today(), command: command.to_owned() };
    let bar = terminal::progress("measuring");
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    let measured = microbench::measure(
        &options,
        &mut |progress| {
            bar.set_length(progress.of as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(progress.what.to_owned());
        },
        &mut |host| write_atomically(&partial, host.to_yaml()),
    );
    bar.finish_and_clear();
    let measured = measured.or_failed()?;
    std::fs::rename(&partial, out).or_failed()?;
    for warning in &measured.warnings {
        crate::terminal::errln!("warning: {warning}");
    }
    Ok(measured.host)
}
