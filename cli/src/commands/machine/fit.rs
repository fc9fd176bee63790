//! `fulcrum machine fit POINTS.csv…`

use crate::text::terminal::{self, out, out_json, outln};
use crate::written::{WRITTEN_FILE, refuse_inputs};
use fulcrum::{Error, FittedGpu, GpuFitOptions, ReachedFitOptions, Result, fit_reached, is_llama_bench};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Fit a GPU's rates to measured points, or a machine's to llama-bench.
///
/// Tables of llama-bench (-o json, csv or md), with --machine: what the machine reached of the
/// rates that its parts promise. Any command takes the file that is written as its machine.
///
/// The columns of a file tell what was measured: products (dtype,m,n,k,latency_us), attention
/// (phase,batch, new_tokens,past_tokens,heads,kv_heads,head_dim,latency_us), its memory
/// (stream,bytes,gb_per_s: read or copy), its link (direction,memory,bytes,latency_us: h2d, d2h or
/// both; pinned or pageable). A column gpu says of which GPU.
///
/// Tables of an engine's layer times, with --model and --gpu: products and small kernels
/// (layer,tokens,time_us and layer,sequences,time_us), attention
/// (prefill_chunk,kv_prefill,n_decode,kv_decode,time_us), experts
/// (tokens,activated_experts,time_us), all-reduces (ranks,bytes,time_us).
#[derive(Debug, clap::Args)]
pub struct MachineFitArguments {
    /// CSV files of points, or tables of llama-bench.
    #[arg(required = true)]
    points: Vec<PathBuf>,
    /// The GPU, a shipped one or a file with its peak rates and bandwidth; without it, the one of
    /// the column gpu.
    #[arg(long, value_name = "PART")]
    gpu: Option<String>,
    /// Only the points whose column gpu says this.
    #[arg(long, value_name = "GPU")]
    only: Option<String>,
    /// The machine that llama-bench ran on: its parts in words, or the file of a composition.
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["gpu", "only"])]
    machine: Option<String>,
    /// The model of tables of layer times, or of a table of llama-bench that does not name it.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The format in such a table of llama-bench, as q4_k_m.
    #[arg(long, value_name = "FORMAT", requires = "machine")]
    format: Option<String>,
    /// The GPUs that share each layer in tables of layer times.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "model")]
    tensor_parallel: u64,
    /// Where to write the machine's or the GPU's file; a folder where there are several, or a link.
    /// Without it nothing is written.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
}

impl MachineFitArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let date = terminal::today();
        let Self { points, gpu, machine, only, model, format, tensor_parallel: ranks, out } = self;
        if let Some(machine) = machine {
            let options = ReachedFitOptions { runs: points, machine, model, format, date };
            return fit_machine(&options, out.as_deref(), json);
        }
        for path in &points {
            if is_llama_bench(path)? {
                let path = path.display();
                return Err(Error::input(format!(
                    "{path} is of llama-bench, which measures a machine: name it with --machine \"RTX 4090, \
                     i7-14700K, 64 GB\""
                )));
            }
        }
        let fitted = fulcrum::fit_gpus(&GpuFitOptions { points, gpu, only, model, ranks, date })?;
        let written = match &out {
            Some(out) => {
                refuse_inputs(FittedGpu::paths(&fitted, out)?)?;
                FittedGpu::write_all(&fitted, out)?
            }
            None => vec![],
        };
        if json {
            let all: Vec<_> = fitted.iter().map(FittedGpu::to_json).collect();
            out_json!(&json!({"fitted": all, "written": written}));
            return Ok(());
        }
        for gpu in &fitted {
            out!("{}", gpu.to_text());
        }
        written.iter().for_each(|path| outln!("written to {}", path.display()));
        Ok(())
    }
}

/// What a machine reached of its parts' rates.
fn fit_machine(options: &ReachedFitOptions, out: Option<&Path>, json: bool) -> Result {
    refuse_inputs(out.map(Path::to_path_buf))?;
    let fit = fit_reached(options)?;
    out.map_or(Ok(()), |out| fit.write(out))?;
    match json {
        true => out_json!(&fit.to_json()),
        false => out!("{fit}"),
    }
    match out {
        Some(out) if !json => outln!("written to {}, for --machine and a scenario's machine", out.display()),
        _ => {}
    }
    Ok(())
}
