//! A model in words: its layers, what it keeps of a sequence, its bytes.

use hwprofiles::{Bytes, DType, Elements};
use scenarios::{Experts, Formats, Mixer, Model, Recurrence};
use std::fmt;

/// A model, to be printed as a screen of text.
#[derive(Debug, Clone, Copy)]
pub struct ModelText<'m>(pub &'m Model);

impl fmt::Display for ModelText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(model) = self;
        let parameters = model.parameters().rounded();
        writeln!(f, "{}: {:?}, {parameters} parameters", model.name, model.architecture)?;
        if model.experts.is_some() {
            writeln!(f, "  active for a token   {}", model.active_parameters().rounded())?;
        }
        if model.mtp > 0 {
            let parameters = model.mtp_parameters().rounded();
            writeln!(
                f,
                "  beside them          {} module(s) that predict further tokens: {parameters}",
                model.mtp
            )?;
        }
        if let Some(ngrams) = model.wiring.ngrams {
            let numbers = Elements::product(&[ngrams.rows, ngrams.width]).rounded();
            writeln!(
                f,
                "  tables of n-grams    {numbers}, {} rows of {} for a token",
                ngrams.hashes, ngrams.width
            )?;
        }
        writeln!(
            f,
            "  hidden {}, vocabulary {}, context {}",
            model.hidden, model.vocab, model.max_positions
        )?;
        write_layers(f, model)?;
        write_cache(f, model)?;
        write_bytes(f, model)
    }
}

/// One paragraph for each kind of layer.
fn write_layers(f: &mut fmt::Formatter<'_>, model: &Model) -> fmt::Result {
    writeln!(f, "\n{} layers", model.layers)?;
    for (kind, count) in model.kinds() {
        let shape = model.shape(kind);
        let network = network_of(shape);
        match (shape.has_mixer(), network) {
            (true, Some(network)) => {
                writeln!(f, "  {count:>3} x {}", mixer_of(shape))?;
                writeln!(f, "        {network}")?;
            }
            (true, None) => writeln!(f, "  {count:>3} x {}", mixer_of(shape))?,
            (false, network) => writeln!(f, "  {count:>3} x {}", network.unwrap_or_default())?,
        }
        if shape.has_mixer() {
            writeln!(f, "        {}", kept_by(shape))?;
        }
    }
    Ok(())
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
    let index = match shape.index.filter(|index| index.computes && index.pooled.is_none()) {
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
fn write_cache(f: &mut fmt::Formatter<'_>, model: &Model) -> fmt::Result {
    writeln!(f, "\nkept of each sequence")?;
    let kv = DType::Bf16.bytes(Elements::new(model.growing_kv_numbers().ceil() as u64));
    writeln!(f, "  for each token       {} numbers ({kv} in bf16)", short(model.growing_kv_numbers()))?;
    if model.growing_index_numbers() > 0 {
        writeln!(f, "  and index keys       {} numbers", model.growing_index_numbers())?;
    }
    let state = model.constant_bytes(DType::Bf16);
    if state > Bytes::ZERO {
        writeln!(f, "  whatever its length  {state} (windows in bf16, states in f32)")?;
    }
    Ok(())
}

/// The bytes of layers and of the whole in three formats.
fn write_bytes(f: &mut fmt::Formatter<'_>, model: &Model) -> fmt::Result {
    writeln!(f, "\n{:<22} {:>12} {:>12} {:>12}", "bytes of weights", "bf16", "int8", "int4")?;
    let mut row = |name: &str, bytes: &dyn Fn(&Formats) -> Bytes| {
        let [bf16, int8, int4] = [DType::Bf16, DType::Int8, DType::Int4].map(|dtype| {
            let weights = dtype.into();
            bytes(&Formats { weights, kv: DType::Bf16, activations: DType::F32 }).to_string()
        });
        writeln!(f, "{name:<22} {bf16:>12} {int8:>12} {int4:>12}")
    };
    for (kind, count) in model.kinds() {
        row(&format!("one of the {count}"), &|formats| model.layer_bytes(kind, formats))?;
    }
    row("model", &|formats| model.weight_bytes(formats))
}

/// A number without decimals if it is whole.
fn short(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.2}") }
}
