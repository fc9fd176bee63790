//! `fulcrum bench`

use crate::exit::{Outcome, Sort};
use crate::terminal::outln;
use crate::{inputs, terminal};
use hwprofiles::{Host, Parts, write_atomically};
use microbench::{Depth, Options};
use std::path::{Path, PathBuf};

/// Measure this machine: memory, matrix products, attention, threads, the loopback's link, and the GPU
/// where there is one.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to write the host's file; without it, where `this` finds it.
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Half a minute instead of about five: fewer shapes, fewer repeats.
    #[arg(long)]
    quick: bool,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let out = arguments.out.unwrap_or_else(inputs::this_host);
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder).or_input()?;
    }
    let host = measure(&out, arguments.quick)?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&host).or_failed()?);
    } else {
        outln!("{}", Parts::of(host.clone()).with_own_gpu().machine(&host.host).or_failed()?);
        outln!("written to {}", out.display());
    }
    Ok(())
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
        eprintln!("warning: {warning}");
    }
    Ok(measured.host)
}
