//! `fulcrum bench`

use crate::text::roofline_check;
use crate::text::terminal::{self, ProgressDisplay, out, out_json, outln};
use crate::written::WRITTEN_FILE;
use fulcrum::{Error, OrError, Result};
use hwprofiles::{Host, HostChanges, MachineParts};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Measure this machine: memory, matrix products, attention, threads, the loopback's link, and the
/// GPU where there is one. Or compare two measurements.
#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    /// Where to write the host's file; without it, where `this` finds it. With `--check`, where to
    /// write a plot (SVG) of the kernels under the roofline.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
    /// Half a minute instead of about five: fewer shapes, fewer repeats.
    #[arg(long)]
    quick: bool,
    /// Measure nothing: show what changed from one host's file to another's, the largest change
    /// first.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["out", "quick"])]
    compare: Option<Vec<PathBuf>>,
    /// Measure nothing: run the kernels of a forward pass on the GPU, each beside the CPU's.
    #[arg(long, conflicts_with_all = ["out", "quick", "compare"])]
    gpu_kernels: bool,
    /// Prove a host's file, by default that of `this`: predict six kernels from it (AXPY, GEMV,
    /// GEMM, SpMV, a Jacobi sweep, CG), measure them, and show both under the roofline.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["compare", "gpu_kernels"])]
    check: Option<Option<PathBuf>>,
}

impl BenchArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        if let Some([a, b]) = self.compare.as_deref() {
            let changes = HostChanges::between(&read(a)?, &read(b)?);
            match json {
                true => out_json!(&changes),
                false => out!("{changes}"),
            }
            return Ok(());
        }
        if self.gpu_kernels {
            return compare_gpu_kernels(json);
        }
        if let Some(host) = &self.check {
            return self.check(host.as_deref(), json);
        }
        let out = self.out.unwrap_or_else(fulcrum::this_host_file);
        if let Some(folder) = out.parent() {
            std::fs::create_dir_all(folder).or_failed()?;
        }
        let display = ProgressDisplay::default();
        let progress = |event: fulcrum::ProgressEvent<'_>| display.show(event);
        let host = fulcrum::measure_host(&out, self.quick, &terminal::today(), &progress)?;
        if json {
            out_json!(&host);
        } else {
            outln!(
                "{}",
                MachineParts::from_host(host.clone()).with_own_gpu().machine(&host.host).or_failed()?
            );
            outln!("{host}");
            outln!("written to {}", out.display());
        }
        Ok(())
    }

    /// Prints the kernels of a roofline, predicted from `host` and measured.
    fn check(&self, host: Option<&Path>, json: bool) -> Result {
        let host = host.map_or_else(fulcrum::this_host_file, Path::to_path_buf);
        let display = ProgressDisplay::default();
        let progress = |event: fulcrum::ProgressEvent<'_>| display.show(event);
        let check = fulcrum::check_roofline(&host, self.quick, &progress)?;
        match json {
            true => out_json!(&roofline_check::document(&check)),
            false => out!("{}", roofline_check::table(&check)),
        }
        let Some(out) = &self.out else { return Ok(()) };
        hwprofiles::write_atomically(out, roofline_check::plot(&check)).or_failed()
    }
}

/// Prints how far each of the GPU's kernels is from the CPU's.
fn compare_gpu_kernels(json: bool) -> Result {
    let (gpu, found) = fulcrum::compare_gpu_kernels()?;
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
        false => Err(Error::failed(format!("not as the CPU's: {}", wrong.join("; ")))),
    }
}

fn read(file: &Path) -> Result<Host> {
    let name = file.display().to_string();
    let text = hwprofiles::read_text(file).or_input().map_err(|error| error.within(&name))?;
    Host::from_yaml(&text, &name).or_input()
}
