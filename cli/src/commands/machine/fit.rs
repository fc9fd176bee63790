//! `fulcrum machine fit POINTS.csv…`

use crate::text::gpu_fit;
use crate::text::terminal::{self, out, out_json, outln};
use crate::written::{WRITTEN_FILE, refuse_inputs};
use fulcrum::{FittedGpu, GpuFitOptions, Result};
use serde_json::json;
use std::path::PathBuf;

/// Fit a GPU's rates to measured points.
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
    /// CSV files of points.
    #[arg(required = true)]
    points: Vec<PathBuf>,
    /// The GPU, a shipped one or a file with its peak rates and bandwidth; without it, the one of
    /// the column gpu.
    #[arg(long, value_name = "PART")]
    gpu: Option<String>,
    /// Only the points whose column gpu says this.
    #[arg(long, value_name = "GPU")]
    only: Option<String>,
    /// The model of tables of layer times.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The GPUs that share each layer in tables of layer times.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "model")]
    tensor_parallel: u64,
    /// Where to write the GPU's file; a folder where there are several, or a link. Without it
    /// nothing is written.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
}

impl MachineFitArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { points, gpu, only, model, tensor_parallel: ranks, out } = self;
        let date = terminal::today();
        let fitted = fulcrum::fit_gpus(&GpuFitOptions { points, gpu, only, model, ranks, date })?;
        let written = match &out {
            Some(out) => {
                refuse_inputs(FittedGpu::paths(&fitted, out)?)?;
                FittedGpu::write_all(&fitted, out)?
            }
            None => vec![],
        };
        if json {
            let all: Vec<_> = fitted.iter().map(gpu_fit::to_json).collect();
            out_json!(&json!({"fitted": all, "written": written}));
            return Ok(());
        }
        for gpu in &fitted {
            out!("{}", gpu_fit::to_text(gpu));
        }
        written.iter().for_each(|path| outln!("written to {}", path.display()));
        Ok(())
    }
}
