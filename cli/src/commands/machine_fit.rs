//! `fulcrum machine fit POINTS.csv…`

use crate::text::gpu_fit;
use crate::text::terminal::{self, out, out_json, outln};
use fulcrum::{FittedGpu, GpuFitOptions, Result};
use serde_json::json;
use std::path::PathBuf;

/// Fit a GPU's rates to measured points.
///
/// The columns of a file tell what was measured: products (dtype,m,n,k,latency_us), attention
/// (phase,batch, new_tokens,past_tokens,heads,kv_heads,head_dim,latency_us), its memory
/// (stream,bytes,gb_per_s: read or copy), its link (direction,memory,bytes,latency_us: h2d, d2h or
/// both; pinned or pageable). A column gpu says of which GPU.
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
    /// Where to write the GPU's file; a folder where there are several, or a link. Without it
    /// nothing is written.
    #[arg(short, long)]
    out: Option<PathBuf>,
}

impl MachineFitArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { points, gpu, only, out } = self;
        let fitted = fulcrum::fit_gpus(&GpuFitOptions { points, gpu, only, date: terminal::today() })?;
        let written = match &out {
            Some(out) => FittedGpu::write_all(&fitted, out)?,
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
