//! A GGUF file as a shard: its tensors by the names, and with the rows in the order, that Hugging Face has.

use crate::coding::Coding;
use crate::error::Error;
use crate::rotation::frequencies;
use crate::shard::{Shard, Stored};
use hwprofiles::Bytes;
use scenarios::{Architecture, Gguf, GgufTensor, Model, Positions};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Names outside the layers.
const ENDS: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

/// Names within a layer.
const LAYER: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Matrices of all experts in one tensor, with their names in Mixtral and in the others.
const EXPERTS: [(&str, [&str; 2]); 3] = [
    ("ffn_gate_exps", ["w1", "gate_proj"]),
    ("ffn_up_exps", ["w3", "up_proj"]),
    ("ffn_down_exps", ["w2", "down_proj"]),
];

/// Llama's rotation as a file has it: how many times slower each pair turns.
const STRETCH: &str = "rope_freqs.weight";

impl Shard {
    /// The tensors of the file at `path`, whose header is `gguf`, for `model`.
    ///
    /// # Errors
    /// The file cannot be read, ends before a tensor does, or stretches its rotation otherwise than Llama 3.
    pub fn of_gguf(path: &Path, gguf: &Gguf, model: &Model) -> Result<Self, Error> {
        let unreadable = |source| Error::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let turns = gguf.text("general.architecture") == Some("llama");
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &gguf.tensors {
            for (ours, stored) in stored(name, tensor, model, turns) {
                let values = stored.shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
                let end = |coding: Coding| stored.start.checked_add(coding.bytes(values?)?);
                if let Some(end) = stored.coding.and_then(end).filter(|&end| end > length) {
                    let (expected, found) = (Bytes::new(end), Bytes::new(length));
                    return Err(Error::Truncated { path: path.to_owned(), expected, found });
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

    /// Refuses a rotation that is stretched otherwise than the model was read to be.
    fn check_stretch(&self, stretch: &GgufTensor, model: &Model) -> Result<(), Error> {
        let stretched = frequencies(model);
        let Positions::Rotary { theta, .. } = model.positions else { return Ok(()) };
        let plain =
            frequencies(&Model { positions: Positions::Rotary { theta, scaling: None }, ..model.clone() });
        let mut factors = vec![0.0; plain.len()];
        let wrong = || Error::Malformed {
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
        Coding::F32.decode(&bytes, &mut factors);
        let near =
            |((plain, stretched), factor): ((f32, f32), f32)| (plain / stretched / factor - 1.0).abs() < 1e-3;
        match plain.into_iter().zip(stretched).zip(factors).all(near) {
            true => Ok(()),
            false => Err(wrong()),
        }
    }
}

/// What of a GGUF tensor is ours, and under which names: nothing, one tensor, or one for each expert.
fn stored(name: &str, tensor: &GgufTensor, model: &Model, turns: bool) -> Vec<(String, Stored)> {
    let coding = Coding::of_ggml(tensor.format);
    let turned = |word: &str| (turns && matches!(word, "attn_q" | "attn_k")).then_some(model.head_dim);
    let new = |shape: &[u64], start, turned| Stored {
        coding,
        format: format!("ggml's format {}", tensor.format),
        shape: shape.to_vec(),
        start,
        turned,
    };
    if let Some((_, ours)) = ENDS.into_iter().find(|(theirs, _)| *theirs == name) {
        return vec![(ours.to_owned(), new(&tensor.shape, tensor.start, None))];
    }
    let parts = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let Some((layer, (word, kind))) = parts.and_then(|(layer, rest)| Some((layer, rest.rsplit_once('.')?)))
    else {
        return vec![];
    };
    let layer = format!("model.layers.{layer}.");
    if let Some((_, ours)) = LAYER.into_iter().find(|(theirs, _)| *theirs == word) {
        return vec![(format!("{layer}{ours}.{kind}"), new(&tensor.shape, tensor.start, turned(word)))];
    }
    let mixtral = model.architecture == Architecture::Mixtral;
    let block = if mixtral { "block_sparse_moe" } else { "mlp" };
    if word == "ffn_gate_inp" {
        return vec![(format!("{layer}{block}.gate.{kind}"), new(&tensor.shape, tensor.start, None))];
    }
    let matrix = EXPERTS.into_iter().find(|(theirs, _)| *theirs == word);
    let (Some((_, names)), [count, rows, columns], Some(coding)) = (matrix, &tensor.shape[..], coding) else {
        return vec![];
    };
    let Some(bytes) = rows.checked_mul(*columns).and_then(|values| coding.bytes(values)) else {
        return vec![];
    };
    let expert = |expert: u64| {
        let start = tensor.start.saturating_add(expert.saturating_mul(bytes));
        let ours = names[usize::from(!mixtral)];
        (format!("{layer}{block}.experts.{expert}.{ours}.{kind}"), new(&[*rows, *columns], start, None))
    };
    // No more than the model has, whatever the file says.
    let known = model.experts.as_ref().map_or(0, |experts| experts.count);
    (0..known.min(*count)).map(expert).collect()
}
