//! Latent attention's expansion, which files have in two parts: the keys' part of each head, turned
//! so that queries can be multiplied by it, and the values' part.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::shard::{RowOrder, Shard, StoredTensor};

/// Where the two parts of an expansion lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AbsorbedExpansion {
    heads: u64,
    /// The keys' matrices of the heads, \[rank, plain columns of a key\].
    keys: TensorFormat,
    /// Plain columns of a key.
    plain: u64,
    /// The values' matrices of the heads, \[columns of a value, rank\].
    values: TensorFormat,
    values_start: u64,
    /// Columns of a value.
    value: u64,
}

/// Adds the expansion `kv_b_proj` of each layer whose file has its two parts.
pub(super) fn add_expansions(shard: &mut Shard) {
    const KEYS: &str = "self_attn.k_b_proj.weight";
    let expansion = |(name, keys): (&String, &StoredTensor)| {
        let layer = name.strip_suffix(KEYS)?;
        let values = shard.tensors.get(&format!("{layer}self_attn.v_b_proj.weight"))?;
        let (&[heads, rank, plain], &[same_heads, value, same_rank]) = (&keys.shape[..], &values.shape[..])
        else {
            return None;
        };
        let (Some(keys_format), Some(values_format)) = (keys.format, values.format) else { return None };
        let whole = AbsorbedExpansion {
            heads,
            keys: keys_format,
            plain,
            values: values_format,
            values_start: values.start,
            value,
        };
        let stored = StoredTensor {
            format: Some(TensorFormat::F32),
            shape: vec![heads * (plain + value), rank],
            order: RowOrder::Absorbed(whole),
            ..keys.clone()
        };
        let alike = same_heads == heads && same_rank == rank;
        alike.then(|| (format!("{layer}self_attn.kv_b_proj.weight"), stored))
    };
    let added: Vec<_> = shard.tensors.iter().filter_map(expansion).collect();
    shard.tensors.extend(added);
}

/// Fills `rows` with rows of the expansion from row `first` on, in f32. `whole` is the expansion,
/// which is read once.
pub(in crate::weights) fn read_expansion(
    shard: &Shard,
    stored: &StoredTensor,
    parts: AbsorbedExpansion,
    first: u64,
    (whole, rows): (&mut Vec<u8>, &mut [u8]),
) -> Result<(), ExecutorError> {
    let rank = stored.shape[1] as usize;
    if whole.is_empty() {
        let [heads, plain, value] = [parts.heads, parts.plain, parts.value].map(|size| size as usize);
        let keys = read_values(shard, parts.keys, stored.start, heads * rank * plain)?;
        let values = read_values(shard, parts.values, parts.values_start, heads * value * rank)?;
        for (keys, values) in keys.chunks_exact(rank * plain).zip(values.chunks_exact(value * rank)) {
            let turned = (0..plain).flat_map(|row| (0..rank).map(move |column| column * plain + row));
            let all = turned.map(|at| keys[at]).chain(values.iter().copied());
            whole.extend(all.flat_map(f32::to_le_bytes));
        }
    }
    rows.copy_from_slice(&whole[first as usize * rank * 4..][..rows.len()]);
    Ok(())
}

fn read_values(
    shard: &Shard,
    format: TensorFormat,
    start: u64,
    count: usize,
) -> Result<Vec<f32>, ExecutorError> {
    let mut bytes = vec![0; format.bytes(count as u64).unwrap_or(0) as usize];
    shard.read(&mut bytes, start)?;
    let mut values = vec![0.0; count];
    format.decode(&bytes, &mut values);
    Ok(values)
}
