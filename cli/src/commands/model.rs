//! `fulcrum model list | show | init`

use crate::text::terminal::{out_json, outln};
use clap::{Args, Subcommand};
use fulcrum::{OrError, Result};
use hwprofiles::{Bytes, DType, Elements};
use scenarios::{Experts, Formats, LatentAttention, LayerBlocks, Model, Sublayer};
#[cfg(feature = "run")]
use serde_json::json;
#[cfg(feature = "run")]
use std::path::PathBuf;

/// Architectures: list the presets, show one, make a model with random weights.
#[derive(Debug, Args)]
pub struct ModelArguments {
    #[command(subcommand)]
    action: ModelAction,
}

#[derive(Debug, Subcommand)]
enum ModelAction {
    /// List the presets.
    List,
    /// Show a preset, a model folder or a config.json: shape, parameters, bytes.
    Show {
        /// A preset's name, a folder, or a config.json.
        model: String,
    },
    /// Make a model folder in Hugging Face form with random bf16 weights.
    #[cfg(feature = "run")]
    Init {
        /// A preset's name, a folder, or a config.json.
        model: String,
        /// The folder to make; it must not exist.
        #[arg(short, long)]
        out: PathBuf,
        /// Seed of the weights.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

impl ModelArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        match self.action {
            ModelAction::List => list(json),
            ModelAction::Show { model } => show(&fulcrum::model(&model)?, json),
            #[cfg(feature = "run")]
            ModelAction::Init { model, out, seed } => {
                let model = fulcrum::model(&model)?;
                fulcrum::init_model(&model, &out, seed)?;
                match json {
                    true => outln!("{}", json!({"folder": out, "parameters": model.parameters()})),
                    false => {
                        outln!("{}: {} parameters, seed {seed}", out.display(), millions(model.parameters()))
                    }
                }
                Ok(())
            }
        }
    }
}

fn list(json: bool) -> Result {
    let models: Vec<_> = Model::preset_names().map(Model::preset).collect::<Result<_, _>>().or_failed()?;
    if json {
        out_json!(&models);
        return Ok(());
    }
    outln!(
        "{:<16} {:>10} {:>7} {:>7} {:>9} {:>9}",
        "model",
        "parameters",
        "layers",
        "hidden",
        "heads/kv",
        "context"
    );
    for model in &models {
        let heads = format!("{}/{}", model.heads, model.kv_heads);
        outln!(
            "{:<16} {:>10} {:>7} {:>7} {:>9} {:>9}",
            model.name,
            millions(model.parameters()),
            model.layers,
            model.hidden,
            heads,
            model.max_positions
        );
    }
    Ok(())
}

fn show(model: &Model, json: bool) -> Result {
    if json {
        out_json!(model);
        return Ok(());
    }
    outln!("{}: {:?}, {} parameters", model.name, model.architecture, millions(model.parameters()));
    outln!("  layers {}, hidden {}, intermediate {}", model.layers, model.hidden, model.intermediate);
    outln!("  heads {} of {}, kv heads {}", model.heads, model.head_dim, model.kv_heads);
    if let Some(latent) = model.latent() {
        let LatentAttention { kv_rank, rope_dim, .. } = latent;
        outln!("  latent attention: {kv_rank} + {rope_dim} numbers per token and layer in the KV cache");
    }
    if let Some(experts) = &model.experts {
        let Experts { count, per_token, intermediate, shared, .. } = experts;
        let shared = if *shared > 0 { format!(", shared expert of {shared}") } else { String::new() };
        outln!("  experts {count} of {intermediate}, {per_token} per token{shared}");
        outln!("  {} parameters active", millions(model.active_parameters()));
    }
    outln!("  vocabulary {}, context {}", model.vocab, model.max_positions);
    let wide = model.sublayers().iter().map(|sublayer| sublayer.name().len()).fold(10, usize::max);
    outln!("\n{:<wide$} {:>12} {:>12} {:>12}", "bytes", "bf16", "int8", "int4");
    let row = |name: &str, bytes: &dyn Fn(&Formats) -> Bytes| {
        let [bf16, int8, int4] = [DType::Bf16, DType::Int8, DType::Int4].map(|dtype| {
            let weights = dtype.into();
            bytes(&Formats { weights, kv: DType::Bf16, activations: DType::F32 }).to_string()
        });
        outln!("{name:<wide$} {bf16:>12} {int8:>12} {int4:>12}");
    };
    for sublayer in model.sublayers() {
        if !matches!(sublayer, Sublayer::Embed | Sublayer::Head) {
            row(sublayer.name(), &|formats| model.sublayer_bytes(sublayer, formats));
        }
    }
    for (kind, _) in model.kinds() {
        let name = match kind.blocks {
            LayerBlocks::Dense => "layer",
            LayerBlocks::Parallel => "parallel layer",
            LayerBlocks::Mixer | LayerBlocks::Network => "half layer",
            _ => "MoE layer",
        };
        row(name, &|formats| model.layer_bytes(kind, formats));
    }
    row("model", &|formats| model.weight_bytes(formats));
    row("KV/token", &|formats| {
        (0..model.layers).map(|l| scenarios::kv_bytes(model.layer(l), formats, 1, 1)).sum()
    });
    Ok(())
}

/// A parameter count as people say it: `8.03 B`, `250 M`.
fn millions(count: Elements) -> String {
    let count = count.as_f64();
    let (value, unit) = if count >= 1e9 { (count / 1e9, "B") } else { (count / 1e6, "M") };
    match value {
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}
