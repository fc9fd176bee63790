//! A GGUF file as a shard: its tensors under Hugging Face's names, with the rows in Hugging Face's
//! order.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::names::{SINKS, TensorNames};
use crate::weights::rotation::RotaryEmbedding;
use crate::weights::shard::{RowOrder, Shard, StoredTensor};
use hwprofiles::Bytes;
use scenarios::{Architecture, BlockOrder, Gguf, GgufTensor, Model, Positions};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Tensors with the gates, the ups and the downs of all experts.
const EXPERTS: [&str; 3] = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"];

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
        let file = File::open(path).map_err(unreadable)?;
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
        let shard = Self::new(path, tensors, file);
        if let Some(stretch) = gguf.tensors.get(STRETCH) {
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
    let scaled = |name: &&String| {
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
    let format = TensorFormat::from_ggml(tensor.format);
    let new = |shape: &[u64], start, order| StoredTensor {
        format,
        format_name: format!("ggml's format {}", tensor.format),
        shape: shape.to_vec(),
        start,
        norms_include_one: true,
        order,
    };
    let parts = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let layer = parts.and_then(|(layer, _)| layer.parse().ok());
    let names = TensorNames::new(model, layer);
    let Some((word, kind)) = parts.map_or(name, |(_, rest)| rest).rsplit_once('.') else { return vec![] };
    let one = |ours: &str| {
        let order = match word {
            "attn_q" | "attn_k" if turns => RowOrder::PairsInterleaved { head: model.head_dim },
            "attn_qkv" if names.groups > 1 => RowOrder::Concatenated {
                groups: names.groups,
                rows: [model.context_width(), model.kv_width(), model.kv_width()],
            },
            _ => RowOrder::Same,
        };
        vec![(format!("{}{ours}.{kind}", names.layer), new(&tensor.shape, tensor.start, order))]
    };
    if layer.is_none() {
        return match word {
            "token_embd" => one(&format!("{}{}", names.root, names.embed)),
            "output_norm" => one(&format!("{}{}", names.root, names.head_norm)),
            "output" => one(names.head),
            _ => vec![],
        };
    }
    if let ("attn_qkv", [_, _, _], Some(format)) = (word, names.qkv, format) {
        // The file has one tensor where Hugging Face has three.
        let columns = tensor.shape.get(1).copied().unwrap_or(1);
        let mut start = Some(tensor.start);
        let rows = [model.context_width(), model.kv_width(), model.kv_width()];
        let part = |(ours, rows): (&&str, u64)| {
            let at = start?;
            start = rows.checked_mul(columns).and_then(|values| at.checked_add(format.bytes(values)?));
            let shape: Vec<_> = std::iter::once(rows).chain(tensor.shape.get(1).copied()).collect();
            Some((format!("{}{ours}.{kind}", names.layer), new(&shape, at, RowOrder::Same)))
        };
        return names.qkv.iter().zip(rows).filter_map(part).collect();
    }
    // Tensors whose names do not end in `weight` or `bias`.
    let whole = match word {
        "attn_sinks" => Some(SINKS),
        "exp_probs_b" => Some(names.correction),
        _ => None,
    };
    if let Some(ours) = whole {
        return vec![(format!("{}{ours}", names.layer), new(&tensor.shape, tensor.start, RowOrder::Same))];
    }
    if let Some(ours) = within_layer(word, &names, model) {
        return one(ours);
    }
    let matrix = EXPERTS.into_iter().position(|theirs| theirs == word);
    let (Some(matrix), Some(format)) = (matrix, format) else { return vec![] };
    let place = format!("{}{}", names.layer, names.experts);
    let of_expert = |expert: u64, own: &[u64], start| {
        (format!("{place}.{expert}.{}.{kind}", names.expert[matrix]), new(own, start, RowOrder::Same))
    };
    of_experts(tensor, format, model, of_expert)
}

/// The matrices of all experts, or their biases, which one tensor holds: `part` names one by its
/// expert, shape and start.
fn of_experts<T>(
    tensor: &GgufTensor,
    format: TensorFormat,
    model: &Model,
    part: impl Fn(u64, &[u64], u64) -> T,
) -> Vec<T> {
    let [count, own @ ..] = &tensor.shape[..] else { return vec![] };
    let values = own.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
    let Some(bytes) = values.and_then(|values| format.bytes(values)) else { return vec![] };
    let start = |expert: u64| tensor.start.saturating_add(expert.saturating_mul(bytes));
    // At most as many experts as the model has, whatever the file says.
    let known = model.experts.as_ref().map_or(0, |experts| experts.count);
    (0..known.min(*count)).map(|expert| part(expert, own, start(expert))).collect()
}

/// Hugging Face's name for a tensor of a layer.
fn within_layer(word: &str, names: &TensorNames, model: &Model) -> Option<&'static str> {
    let two = model.architecture == Architecture::Falcon && model.wiring.block == BlockOrder::Parallel;
    let at = |list: &'static [&'static str], index: usize| list.get(index).copied();
    Some(match word {
        // In GGUF files, Falcon's second norm is attention's.
        "attn_norm" if two => names.ffn_norm,
        "attn_norm_2" if two => names.attn_norm,
        "attn_norm" => names.attn_norm,
        "attn_q" | "attn_qkv" => at(names.qkv, 0)?,
        "attn_k" => at(names.qkv, 1)?,
        "attn_v" => at(names.qkv, 2)?,
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "attn_output" => names.out,
        // Where no norm is behind attention, it is the one in front of the experts.
        "post_attention_norm" if !model.wiring.norms_behind => names.ffn_norm,
        "post_attention_norm" => names.norms_behind[0],
        "ffn_norm" => names.ffn_norm,
        "ffn_gate" => at(names.up, 0)?,
        "ffn_up" => names.up.last().copied()?,
        "ffn_down" => names.down,
        "post_ffw_norm" => names.norms_behind[1],
        "ffn_gate_inp" => names.router,
        _ => return None,
    })
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
