//! `fulcrum model list | show | init`

use crate::text::terminal::{out_json, outln};
use clap::{Args, Subcommand};
use fulcrum::{OrError, Result};
use hwprofiles::{Bytes, DType, Elements};
use scenarios::{Experts, Formats, Mixer, Model, Recurrence};
use serde_json::{Value, json};
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
    /// Show a preset, a model folder, a config.json or a GGUF file: layers, parameters, bytes.
    Show {
        /// A preset's name or another name of it, a folder, a config.json, or a GGUF file.
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
        let all: Vec<Value> = models.iter().map(fulcrum::described).collect();
        out_json!(&all);
        return Ok(());
    }
    outln!(
        "{:<26} {:>10} {:>8} {:>6} {:>9}  other names",
        "model",
        "parameters",
        "active",
        "layers",
        "context"
    );
    for model in &models {
        let aliases = Model::preset_aliases().filter(|(_, preset)| *preset == model.name);
        let aliases: Vec<_> = aliases.map(|(alias, _)| alias).collect();
        // The first lines of a terminal are 80 columns wide; a longer list goes below.
        let row = format!(
            "{:<26} {:>10} {:>8} {:>6} {:>9}",
            model.name,
            millions(model.parameters()),
            millions(model.active_parameters()),
            model.layers,
            model.max_positions
        );
        let mut lines = wrapped(&aliases, 80 - 28).into_iter();
        match lines.next().filter(|first| row.len() + 2 + first.len() <= 80) {
            Some(first) => outln!("{row}  {first}"),
            None if aliases.is_empty() => outln!("{row}"),
            None => {
                outln!("{row}");
                wrapped(&aliases, 80 - 4).iter().for_each(|line| outln!("    {line}"));
                continue;
            }
        }
        lines.for_each(|line| outln!("    {line}"));
    }
    Ok(())
}

/// Words with commas between them, in lines of at most `width` columns where words allow it.
fn wrapped(words: &[&str], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() < width => {
                line.push_str(", ");
                line.push_str(word);
            }
            Some(line) => {
                line.push(',');
                lines.push((*word).to_owned());
            }
            None => lines.push((*word).to_owned()),
        }
    }
    lines
}

fn show(model: &Model, json: bool) -> Result {
    if json {
        out_json!(&fulcrum::described(model));
        return Ok(());
    }
    outln!("{}: {:?}, {} parameters", model.name, model.architecture, millions(model.parameters()));
    if model.experts.is_some() {
        outln!("  active for a token   {}", millions(model.active_parameters()));
    }
    if model.mtp > 0 {
        let parameters = millions(model.mtp_parameters());
        outln!("  beside them          {} module(s) that predict further tokens: {parameters}", model.mtp);
    }
    outln!("  hidden {}, vocabulary {}, context {}", model.hidden, model.vocab, model.max_positions);
    show_layers(model);
    show_cache(model);
    show_bytes(model);
    Ok(())
}

/// One paragraph for each kind of layer.
fn show_layers(model: &Model) {
    outln!("\n{} layers", model.layers);
    for (kind, count) in model.kinds() {
        let shape = model.shape(kind);
        let network = network_of(shape);
        match (shape.has_mixer(), network) {
            (true, Some(network)) => {
                outln!("  {count:>3} x {}", mixer_of(shape));
                outln!("        {network}");
            }
            (true, None) => outln!("  {count:>3} x {}", mixer_of(shape)),
            (false, network) => outln!("  {count:>3} x {}", network.unwrap_or_default()),
        }
        if shape.has_mixer() {
            outln!("        {}", kept_by(shape));
        }
    }
}

/// What mixes tokens in a layer, in words.
fn mixer_of(shape: &Model) -> String {
    let heads = format!("{} heads of {}", shape.heads, shape.head_dim);
    let mut words = match shape.mixer {
        Mixer::Attention if shape.wiring.shares_kv => {
            format!("attention: {heads}, an earlier layer's keys and values")
        }
        Mixer::Attention => match shape.value_dim() == shape.head_dim {
            true => format!("attention: {heads}, {} of keys and values", shape.kv_heads),
            false => format!(
                "attention: {heads}, {} of keys and values ({} wide)",
                shape.kv_heads,
                shape.value_dim()
            ),
        },
        Mixer::Latent(latent) => {
            format!("latent attention: {heads}, {} + {} numbers kept", latent.kv_rank, latent.rope_dim)
        }
        Mixer::Compressed(compressed) => match compressed.ratio {
            None => format!("attention: {heads}, window of {}", compressed.window),
            Some(ratio) => {
                format!("attention: {heads}, window of {}, 1 of {ratio} before it", compressed.window)
            }
        },
        Mixer::Recurrent(recurrence) => recurrence_of(recurrence),
    };
    if let Some(window) = shape.wiring.window {
        let kind = if window.chunked { "chunks" } else { "window" };
        words += &format!(", {kind} of {}", window.tokens);
    }
    if let Some(index) = shape.index {
        let own = if index.computes { "" } else { ", chosen earlier" };
        words += &format!(", top {}{own}", index.selected);
    }
    words
}

fn recurrence_of(recurrence: Recurrence) -> String {
    match recurrence {
        Recurrence::GatedDelta { value_heads, key_dim, value_dim, .. } => {
            format!("gated delta net: {value_heads} heads of {key_dim} x {value_dim}")
        }
        Recurrence::KimiDelta { heads, head_dim, .. } => {
            format!("Kimi delta attention: {heads} heads of {head_dim} x {head_dim}")
        }
        Recurrence::Mamba2 { heads, head_dim, state, .. } => {
            format!("Mamba-2: {heads} heads of {head_dim} x {state}")
        }
        Recurrence::Mamba1 { channels, state, .. } => {
            format!("Mamba: {channels} channels of {state}")
        }
        Recurrence::ShortConvolution { channels, taps } => {
            format!("convolution: {channels} channels over {taps} tokens")
        }
    }
}

/// The network or the experts of a layer, in words; `None` without either.
fn network_of(shape: &Model) -> Option<String> {
    if !shape.has_network() {
        return None;
    }
    let Some(experts) = &shape.experts else {
        return Some(format!("network of {}", shape.intermediate));
    };
    let Experts { count, per_token, intermediate, shared, latent, .. } = experts;
    let mut words = format!("{per_token} of {count} experts of {intermediate}");
    if let Some(latent) = latent {
        words += &format!(" at width {latent}");
    }
    if *shared > 0 {
        words += &format!(", shared expert of {shared}");
    }
    Some(words)
}

/// What a layer keeps of a sequence, in words.
fn kept_by(shape: &Model) -> String {
    let state = shape.constant_bytes_of_shape(DType::Bf16);
    let growing = shape.growing_kv_of_shape();
    let index = match shape.index.filter(|index| index.computes) {
        Some(index) if !matches!(shape.mixer, Mixer::Compressed(_)) => format!(" + {} index keys", index.dim),
        _ => String::new(),
    };
    match (growing > 0.0, state > Bytes::ZERO) {
        (true, false) => format!("cache: {}{index} numbers per token", short(growing)),
        (true, true) => format!("cache: {}{index} numbers per token, and {state}", short(growing)),
        (false, true) => format!("state: {state} per sequence, whatever its length"),
        (false, false) => "no cache of its own".to_owned(),
    }
}

/// What all layers keep of a sequence.
fn show_cache(model: &Model) {
    outln!("\nkept of each sequence");
    let kv = DType::Bf16.bytes(Elements::new(model.growing_kv_numbers().ceil() as u64));
    outln!("  for each token       {} numbers ({kv} in bf16)", short(model.growing_kv_numbers()));
    if model.growing_index_numbers() > 0 {
        outln!("  and index keys       {} numbers", model.growing_index_numbers());
    }
    let state = model.constant_bytes(DType::Bf16);
    if state > Bytes::ZERO {
        outln!("  whatever its length  {state} (windows in bf16, states in f32)");
    }
}

/// The bytes of layers and of the whole in three formats.
fn show_bytes(model: &Model) {
    outln!("\n{:<22} {:>12} {:>12} {:>12}", "bytes of weights", "bf16", "int8", "int4");
    let row = |name: &str, bytes: &dyn Fn(&Formats) -> Bytes| {
        let [bf16, int8, int4] = [DType::Bf16, DType::Int8, DType::Int4].map(|dtype| {
            let weights = dtype.into();
            bytes(&Formats { weights, kv: DType::Bf16, activations: DType::F32 }).to_string()
        });
        outln!("{name:<22} {bf16:>12} {int8:>12} {int4:>12}");
    };
    for (kind, count) in model.kinds() {
        row(&format!("one of the {count}"), &|formats| model.layer_bytes(kind, formats));
    }
    row("model", &|formats| model.weight_bytes(formats));
}

/// A number without decimals if it is whole.
fn short(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.2}") }
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
