//! A GGUF file as a shard: its tensors under Hugging Face's names, with the rows in Hugging Face's
//! order.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::fused::rows_name;
use crate::weights::gguf::absorbed::add_expansions;
use crate::weights::gguf::layer_names::{outside_layers, stack_outside_layers, within_layer};
use crate::weights::names::TensorNames;
use crate::weights::rotation::RotaryEmbedding;
use crate::weights::shard::{RowOrder, Shard, StoredTensor};
use hwprofiles::Bytes;
use scenarios::{Architecture, Gguf, GgufTensor, Mixer, Model, Positions, Recurrence};
use std::collections::BTreeMap;
use std::path::Path;

/// The stretch of Llama 3's rotation in a file: how many times slower each pair rotates.
const STRETCH: &str = "rope_freqs.weight";

impl Shard {
    /// The tensors of the file at `path`, whose header is `gguf`, for `model`.
    ///
    /// # Errors
    /// The file cannot be read, ends before a tensor does, stretches its rotation in another way
    /// than Llama 3, or scales whole tensors.
    pub fn from_gguf(path: &Path, gguf: &Gguf, model: &Model) -> Result<Self, ExecutorError> {
        let unreadable = |source| ExecutorError::File { path: path.to_owned(), source };
        let file = hwprofiles::open_input(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let turns = gguf.text("general.architecture") == Some("llama");
        refuse_scaled_blocks(path, gguf)?;
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &gguf.tensors {
            for (ours, stored) in stored(name, tensor, model, turns) {
                let values = stored.shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
                let end = |format: TensorFormat| stored.start.checked_add(format.bytes(values?)?);
                if let Some(end) = stored.format.and_then(end).filter(|&end| end > length) {
                    let (expected, found) = (Bytes::new(end), Bytes::new(length));
                    return Err(ExecutorError::Truncated { path: path.to_owned(), expected, found });
                }
                tensors.insert(ours, stored);
            }
        }
        let mut shard = Self::new(path, tensors, file);
        add_expansions(&mut shard);
        // Gemma 4 has factors too, which say that a part of its heads stands still.
        if let Some(stretch) = gguf.tensors.get(STRETCH)
            && model.architecture != Architecture::Gemma4
        {
            shard.check_stretch(stretch, model)?;
        }
        Ok(shard)
    }

    /// Refuses a rotation that is stretched in another way than the model's configuration says.
    fn check_stretch(&self, stretch: &GgufTensor, model: &Model) -> Result<(), ExecutorError> {
        let Positions::Rotary { theta, .. } = model.positions else { return Ok(()) };
        let unstretched = Positions::Rotary { theta, scaling: None };
        let [stretched, plain] = [model.positions.clone(), unstretched].map(|positions| {
            let turning = RotaryEmbedding::new(&Model { positions, ..model.clone() }, model.max_positions);
            turning.expect("it is rotary").frequencies
        });
        let mut factors = vec![0.0; plain.len()];
        let wrong = || ExecutorError::Malformed {
            path: self.path.clone(),
            reason: format!(
                "{STRETCH} is not the stretch of Llama 3 by 8, or by 32 of its small models: no other is read"
            ),
        };
        if stretch.format != 0 || stretch.shape != [plain.len() as u64] {
            return Err(wrong());
        }
        let mut bytes = vec![0; 4 * factors.len()];
        self.read(&mut bytes, stretch.start)?;
        TensorFormat::F32.decode(&bytes, &mut factors);
        let near =
            |((plain, stretched), factor): ((f32, f32), f32)| (plain / stretched / factor - 1.0).abs() < 1e-3;
        match plain.into_iter().zip(stretched).zip(factors).all(near) {
            true => Ok(()),
            false => Err(wrong()),
        }
    }
}

/// Refuses blocks of NVFP4 that a number of their own multiplies: without it the values are wrong.
fn refuse_scaled_blocks(path: &Path, gguf: &Gguf) -> Result<(), ExecutorError> {
    // Gemma 4's router and experts have vectors with such names.
    let own = ["ffn_gate_inp.scale", "ffn_down_exps.scale"];
    let gemma = gguf.text("general.architecture") == Some("gemma4");
    let scaled = |name: &&String| {
        if gemma && own.iter().any(|own| name.ends_with(own)) {
            return false;
        }
        let weight = name.strip_suffix(".scale").map(|name| format!("{name}.weight"));
        weight.is_some_and(|weight| gguf.tensors.contains_key(&weight))
    };
    match gguf.tensors.keys().find(scaled) {
        None => Ok(()),
        Some(name) => Err(ExecutorError::Malformed {
            path: path.to_owned(),
            reason: format!("{name} scales a whole tensor: use a file without such scales, like Q4_K_M"),
        }),
    }
}

/// The tensors of ours that a GGUF tensor holds, with their names: none, one, or one for each
/// expert.
fn stored(name: &str, tensor: &GgufTensor, model: &Model, turns: bool) -> Vec<(String, StoredTensor)> {
    let parts = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let layer = parts.and_then(|(layer, _)| layer.parse().ok());
    let shape = model.layer_or_ends(layer.filter(|&layer| u64::from(layer) < model.layers));
    let names = TensorNames::new(shape, layer);
    let rest = parts.map_or(name, |(_, rest)| rest);
    let (word, kind) = rest.rsplit_once('.').unwrap_or((rest, ""));
    let place = FilePlace { tensor, model: shape, names: &names };
    if layer.is_none() {
        if let Some(stack) = stack_outside_layers(word, &names) {
            let streams = model.wiring.predicted_streams.unwrap_or(0);
            let named = (1..streams).map(|stream| format!("{stack}.{}.{kind}", stream - 1));
            return place.stacked(tensor.shape.get(1..).unwrap_or_default(), named);
        }
        let name = outside_layers(word, &names);
        return name.into_iter().map(|name| (format!("{name}.{kind}"), place.whole())).collect();
    }
    if let Some(parts) = place.parts(word, kind) {
        return parts;
    }
    if let Some(name) = within_layer(word, kind, &names, shape) {
        let order = match word {
            "attn_q" | "attn_k" if turns => RowOrder::PairsInterleaved { head: shape.head_dim },
            "attn_qkv" if names.groups > 1 && shape.mixer == Mixer::Attention => RowOrder::Concatenated {
                groups: names.groups,
                rows: [shape.context_width(), shape.kv_width(), shape.kv_width()],
            },
            _ => RowOrder::Same,
        };
        let stored = StoredTensor { order, negated_exp: word == "ssm_a", ..place.whole() };
        let shape = plain_shape(word, &stored.shape);
        return vec![(format!("{}{name}", names.layer), StoredTensor { shape, ..stored })];
    }
    place.of_experts(word, kind)
}

/// The shape of Hugging Face's tensor where the file's has other dimensions.
fn plain_shape(word: &str, shape: &[u64]) -> Vec<u64> {
    match (word, shape) {
        ("ssm_conv1d", &[channels, taps]) => vec![channels, 1, taps],
        ("ssm_a" | "ssm_d" | "ssm_norm", _) => vec![shape.iter().product()],
        ("ffn_gate_inp_shexp", &[columns]) => vec![1, columns],
        _ => shape.to_vec(),
    }
}

/// A file's tensor of a layer.
struct FilePlace<'a> {
    tensor: &'a GgufTensor,
    /// With the layer's shape.
    model: &'a Model,
    names: &'a TensorNames,
}

impl FilePlace<'_> {
    fn whole(&self) -> StoredTensor {
        StoredTensor {
            format: TensorFormat::from_ggml(self.tensor.format),
            format_name: format!("ggml's format {}", self.tensor.format),
            shape: self.tensor.shape.clone(),
            start: self.tensor.start,
            norms_include_one: true,
            negated_exp: false,
            order: RowOrder::Same,
        }
    }

    /// Tensors of ours that are rows of this one: q, k and v, or those of a gated delta net.
    fn parts(&self, word: &str, kind: &str) -> Option<Vec<(String, StoredTensor)>> {
        if let Mixer::Recurrent(Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, .. }) =
            self.model.mixer
            && self.model.architecture == Architecture::Qwen3Next
        {
            // Hugging Face's tensor has them for each head of keys. They are named as its rows.
            let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
            let each = [0, key_dim, 2 * key_dim, 2 * key_dim + values / key_heads];
            let rows = match word {
                "attn_qkv" => &[(each[0], keys), (each[1], keys), (each[2], values)][..],
                "attn_gate" => &[(each[3], values)],
                _ => return None,
            };
            let name = format!("{}linear_attn.in_proj_qkvz.{kind}", self.names.layer);
            return self.runs(rows.iter().map(|&(first, rows)| (rows_name(&name, first), rows)));
        }
        let ("attn_qkv", &[q, k, v], Mixer::Attention) = (word, self.names.qkv, self.model.mixer) else {
            return None;
        };
        // The file has one tensor where Hugging Face has three.
        let rows = [self.model.context_width(), self.model.kv_width(), self.model.kv_width()];
        let names = [q, k, v].map(|name| format!("{}{name}.{kind}", self.names.layer));
        self.runs(names.into_iter().zip(rows))
    }

    /// Tensors that follow one another in this one, by name and number of rows.
    fn runs(&self, parts: impl Iterator<Item = (String, u64)>) -> Option<Vec<(String, StoredTensor)>> {
        let format = TensorFormat::from_ggml(self.tensor.format)?;
        let columns = self.tensor.shape.get(1).copied().unwrap_or(1);
        let mut start = Some(self.tensor.start);
        let part = |(name, rows): (String, u64)| {
            let at = start?;
            start = rows.checked_mul(columns).and_then(|values| at.checked_add(format.bytes(values)?));
            let shape = std::iter::once(rows).chain(self.tensor.shape.get(1).copied()).collect();
            Some((name, StoredTensor { shape, start: at, ..self.whole() }))
        };
        Some(parts.filter_map(part).collect())
    }

    /// The matrices of all experts, or their biases, which this tensor holds.
    fn of_experts(&self, word: &str, kind: &str) -> Vec<(String, StoredTensor)> {
        let matrices = match word {
            "ffn_gate_exps" => 0..1,
            "ffn_up_exps" => 1..2,
            "ffn_down_exps" => 2..3,
            "ffn_gate_up_exps" => 0..2,
            _ => return vec![],
        };
        let [count, rows, columns @ ..] = &self.tensor.shape[..] else { return vec![] };
        let own: Vec<u64> = std::iter::once(rows / matrices.len() as u64).chain(columns.to_vec()).collect();
        // At most as many experts as the model has, whatever the file says.
        let known = self.model.experts.as_ref().map_or(0, |experts| experts.count);
        let each = (0..known.min(*count)).flat_map(|expert| matrices.clone().map(move |part| (expert, part)));
        let names = self.names;
        let name = |(expert, part): (u64, usize)| {
            format!("{}{}.{expert}.{}.{kind}", names.layer, names.experts, names.expert[part])
        };
        self.stacked(&own, each.map(name))
    }

    /// Tensors of shape `own` that follow one another in this one.
    fn stacked(&self, own: &[u64], names: impl Iterator<Item = String>) -> Vec<(String, StoredTensor)> {
        let format = TensorFormat::from_ggml(self.tensor.format);
        let values = own.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        let bytes = format.zip(values).and_then(|(format, values)| format.bytes(values));
        let Some(bytes) = bytes else { return vec![] };
        let stored = |(number, name): (u64, String)| {
            let start = self.tensor.start.saturating_add(number.saturating_mul(bytes));
            (name, StoredTensor { shape: own.to_vec(), start, ..self.whole() })
        };
        (0..).zip(names).map(stored).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_with_a_scale_of_its_own_is_refused_by_name() {
        let tensor = GgufTensor { shape: vec![64, 2], format: 40, start: 0 };
        let gguf = |names: &[&str]| Gguf {
            metadata: BTreeMap::new(),
            tensors: names.iter().map(|&name| (name.to_owned(), tensor.clone())).collect(),
        };
        let path = Path::new("model.gguf");
        assert!(refuse_scaled_blocks(path, &gguf(&["blk.0.attn_q.weight", "a.scale"])).is_ok());
        let error = refuse_scaled_blocks(path, &gguf(&["blk.0.attn_q.weight", "blk.0.attn_q.scale"]));
        let error = error.expect_err("it would give wrong values").to_string();
        assert!(error.contains("model.gguf") && error.contains("blk.0.attn_q.scale"), "{error}");
    }
}
