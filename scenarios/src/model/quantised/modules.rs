//! The modules of a safetensors checkpoint, with the values of their matrices, and the patterns by
//! which its `quantization_config` names them.

use crate::model::architecture::Architecture;
use crate::model::mixer::Mixer;
use crate::model::operators::sublayer::Sublayer;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;

/// A module with a matrix; all experts of a layer are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WeightModule {
    pub sublayer: Sublayer,
    /// Its names in the families' checkpoints, from `layers.` on.
    pub names: Vec<String>,
    /// Values of its matrix.
    pub values: u64,
}

/// The modules of `model`: those of each layer, then the token table and the output head.
pub(super) fn modules(model: &Model) -> Vec<WeightModule> {
    let mut all = Vec::new();
    for layer in 0..model.layers {
        for &sublayer in model.kind(layer).sublayers() {
            let parts = parts(model.layer(layer), sublayer);
            all.extend(parts.into_iter().map(|(names, values)| WeightModule {
                sublayer,
                names: names.iter().map(|name| format!("layers.{layer}.{name}")).collect(),
                values,
            }));
        }
    }
    let ends = model.vocab * model.hidden;
    for (sublayer, name) in [(Sublayer::Embed, "embed_tokens"), (Sublayer::Head, "lm_head")] {
        all.push(WeightModule { sublayer, names: vec![name.to_owned()], values: ends });
    }
    all
}

/// The names of a recurrent mixer's projections: of the residual, and of the output.
fn recurrent_names(recurrence: Recurrence) -> [&'static [&'static str]; 2] {
    match recurrence {
        Recurrence::GatedDelta { .. } => [
            &["linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "linear_attn.in_proj_z"],
            &["linear_attn.out_proj"],
        ],
        Recurrence::KimiDelta { .. } => [
            &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.f_b_proj"],
            &["self_attn.o_proj"],
        ],
        Recurrence::Mamba1 { .. } | Recurrence::Mamba2 { .. } => {
            [&["mamba.in_proj", "mixer.in_proj"], &["mamba.out_proj", "mixer.out_proj"]]
        }
        Recurrence::ShortConvolution { .. } => [&["conv.in_proj"], &["conv.out_proj"]],
    }
}

/// The modules of one layer's sublayer, with their names and values.
fn parts(model: &Model, sublayer: Sublayer) -> Vec<(&'static [&'static str], u64)> {
    let Some((rows, columns)) = sublayer.matrix(model) else { return vec![] };
    let all = rows * columns;
    if let (Mixer::Recurrent(recurrence), Sublayer::Qkv | Sublayer::Out) = (model.mixer, sublayer) {
        let [of_residual, of_output] = recurrent_names(recurrence);
        return vec![(if sublayer == Sublayer::Qkv { of_residual } else { of_output }, all)];
    }
    match sublayer {
        Sublayer::Qkv if model.latent().is_some() => {
            vec![(&["self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_b_proj"], all)]
        }
        Sublayer::Qkv => {
            let kv = model.kv_width() * columns;
            vec![
                (&["self_attn.q_proj", "self_attn.qkv_proj"], all.saturating_sub(2 * kv)),
                (&["self_attn.k_proj", "self_attn.qkv_proj"], kv),
                (&["self_attn.v_proj", "self_attn.qkv_proj"], kv),
            ]
        }
        Sublayer::Out => vec![(&["self_attn.o_proj"], all)],
        Sublayer::FfnUp if model.activation.is_gated() => vec![
            (&["mlp.gate_proj", "mlp.gate_up_proj"], all / 2),
            (&["mlp.up_proj", "mlp.gate_up_proj"], all - all / 2),
        ],
        Sublayer::FfnUp => vec![(&["mlp.up_proj", "mlp.fc1"], all)],
        Sublayer::FfnDown => vec![(&["mlp.down_proj", "mlp.fc2"], all)],
        Sublayer::Router => {
            vec![(&["mlp.gate", "mlp.router", "block_sparse_moe.gate", "router.proj"], all)]
        }
        // A network beside the experts, which recipes for shared experts do not name.
        Sublayer::SharedExpert if model.architecture == Architecture::Gemma4 => {
            vec![(&["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"], all)]
        }
        Sublayer::SharedExpert => {
            vec![(&["mlp.shared_experts", "mlp.shared_expert", "mixer.shared_experts"], all)]
        }
        Sublayer::Experts => {
            vec![(&["mlp.experts", "block_sparse_moe.experts", "mixer.experts", "experts"], all)]
        }
        _ => vec![],
    }
}

impl WeightModule {
    /// Whether one of its names matches `pattern`.
    pub fn is_named_by(&self, pattern: &str) -> bool {
        let pattern = plain(pattern);
        self.names.iter().any(|name| matches(&pattern, name))
    }

    /// Whether `key`, a module's full name, is one of its names, a part of it, or contains it.
    pub fn is_listed_as(&self, key: &str) -> bool {
        let key = key.find("layers.").map_or(key, |at| &key[at..]);
        let inside = |long: &str, short: &str| {
            long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.names
            .iter()
            .any(|name| inside(key, name) || inside(name, key) || key.rsplit('.').next() == Some(name))
    }
}

/// A pattern with `*` for anything: `re:` expressions and names up to their layers are brought to
/// that form.
fn plain(pattern: &str) -> String {
    let (pattern, expression) = match pattern.strip_prefix("re:") {
        Some(expression) => (expression, true),
        None => (pattern, false),
    };
    let mut text = pattern.trim_start_matches('^').trim_end_matches('$').to_owned();
    if expression {
        text = text.replace("[0-9]+", "*").replace("\\d+", "*").replace(".*", "*").replace("\\.", ".");
    }
    for prefix in ["model.language_model.", "language_model.model.", "model."] {
        text = text.strip_prefix(prefix).map(str::to_owned).unwrap_or(text);
    }
    text
}

/// Whether `pattern` occurs in `name` from a dot (or the start) to a dot (or the end). A `*` at one
/// of its ends needs no dot there.
fn matches(pattern: &str, name: &str) -> bool {
    let starts = std::iter::once(0).chain(name.match_indices('.').map(|(at, _)| at + 1));
    starts.into_iter().any(|at| begins(pattern, &name[at..]))
}

/// Whether `text` begins with `pattern`, up to a dot or the end.
fn begins(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => text.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            after.is_empty() || ends.into_iter().any(|at| begins(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_modules_at_their_dots() {
        let module = |name: &str| WeightModule {
            sublayer: Sublayer::Router,
            names: vec![format!("layers.3.{name}")],
            values: 1,
        };
        for pattern in [
            "mlp.gate",
            "model.layers.*.mlp.gate",
            "re:.*mlp.gate$",
            "re:.*\\.gate",
            "*.gate",
            "model.layers.3",
        ] {
            assert!(module("mlp.gate").is_named_by(pattern), "{pattern}");
        }
        for pattern in ["mlp.gate", "gate", "lm_head", "re:.*mlp.gate$", "model.layers.31"] {
            assert!(!module("mlp.gate_proj").is_named_by(pattern), "{pattern}");
        }
        assert!(module("mlp.gate_proj").is_named_by("re:.*gate.*"));
        assert!(module("self_attn.q_proj").is_named_by("model.layers.*.self_attn*"));
        assert!(module("mlp.experts").is_listed_as("model.layers.3.mlp.experts.7.up_proj"));
        assert!(module("mlp.experts").is_listed_as("backbone.layers.3.mlp"));
        assert!(!module("mlp.gate").is_listed_as("model.layers.3.mlp.gate_proj"));
    }
}
