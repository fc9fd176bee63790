//! Checkpoints with the matrices of all experts of a layer in one tensor.
//!
//! Each expert's matrices become tensors of their own, under the names that other families have:
//! `mlp.experts.EXPERT.gate_proj.weight`. The prefix is the family's. So do the tensors of their
//! scales, whose names end as `layouts::scaled` says: `experts.gate_up_proj_weight_scale` or
//! `experts.gate_up_proj_scale` becomes `mlp.experts.EXPERT.gate_proj.weight_scale`.

use crate::error::ExecutorError;
use crate::weights::format::TensorFormat;
use crate::weights::shard::{RowOrder, Shard, StoredTensor};
use hwprofiles::DType;
use scenarios::{Architecture, Model};

/// Bytes of an MXFP4 block's numbers, without its exponent.
const BLOCK: usize = 16;
/// Values of a block.
const VALUES: u64 = 32;

/// How a family stacks its experts' tensors.
struct Stack {
    /// The tensor's name behind the layer's; `.weight` is not part of it.
    name: &'static str,
    /// The names of the matrices in it.
    parts: &'static [&'static str],
}

const GATE_UP: Stack = Stack { name: "experts.gate_up_proj", parts: &["gate_proj", "up_proj"] };
const DOWN: Stack = Stack { name: "experts.down_proj", parts: &["down_proj"] };

/// What a tensor of a stack holds.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    /// \[expert, inputs, outputs\], of pairs of 4-bit floats half as many inputs; or scales in this
    /// order.
    Columns,
    /// \[expert, outputs, inputs\], the matrices one after another; the same of pairs and scales.
    Rows,
    /// \[expert, outputs\].
    Bias,
    /// MXFP4: \[expert, outputs, inputs / 32, 16 bytes\].
    Blocks,
    /// \[expert\], or one number for all.
    Whole,
}

/// The ends of names of stacked tensors, what the tensors hold, and the last word of each expert's
/// name.
const CONTENTS: [(&str, Content, &str); 9] = [
    ("", Content::Columns, "weight"),
    ("_bias", Content::Bias, "bias"),
    ("_blocks", Content::Blocks, "weight"),
    ("_weight_scale", Content::Columns, "weight_scale"),
    ("_scale", Content::Columns, "weight_scale"),
    ("_weight_scale_2", Content::Whole, "weight_scale_2"),
    ("_scale_2", Content::Whole, "weight_scale_2"),
    ("_weight_global_scale", Content::Whole, "weight_global_scale"),
    ("_global_scale", Content::Whole, "weight_global_scale"),
];

/// Adds to each shard the tensors of each expert of its stacked tensors.
///
/// # Errors
/// [`ExecutorError::MissingTensor`] for blocks without their exponents.
pub(in crate::weights) fn add_experts(model: &Model, shards: &mut [Shard]) -> Result<(), ExecutorError> {
    if !is_stacked(model) {
        return Ok(());
    }
    let in_turn = model.architecture == Architecture::GptOss;
    let by_rows = matches!(model.architecture, Architecture::Gemma4 | Architecture::Qwen35);
    let mut added = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        for (name, stored) in &shard.tensors {
            let Some((layer, stack, (_, content, kind))) = stack_of(name) else { continue };
            let content = if by_rows && content == Content::Columns { Content::Rows } else { content };
            let scales = match content {
                Content::Blocks => Some(scales_of(model, shards, number, name, stored)?),
                _ => None,
            };
            let experts = model.experts.as_ref().map_or(0, |experts| experts.count);
            let new = match content {
                Content::Whole => each_whole(stored, stack, experts, kind),
                _ => unstack(stored, stack, in_turn, (content, kind), scales),
            };
            added.extend(new.into_iter().map(|(own, stored)| (number, format!("{layer}{own}"), stored)));
        }
    }
    for (number, name, stored) in added {
        shards[number].tensors.insert(name, stored);
    }
    Ok(())
}

/// Whether a model's files have stacked experts.
fn is_stacked(model: &Model) -> bool {
    use Architecture::{Gemma4, GptOss, Llama4, Qwen35};
    matches!(model.architecture, GptOss | Llama4 | Gemma4 | Qwen35)
}

/// The name under which a checkpoint has the tensor with our name.
pub(in crate::weights) fn published_name(model: &Model, name: &str) -> String {
    file_name(name, is_stacked(model))
}

/// The name in files of the tensor with our name, which is in the tensor of all experts where
/// `stacked`.
pub(in crate::weights) fn file_name(name: &str, stacked: bool) -> String {
    let published = || {
        let (layer, rest) = name.split_once("experts.")?;
        let (_, part) = rest.split_once('.')?;
        let (part, kind) = part.split_once('.')?;
        let stack = [GATE_UP, DOWN].into_iter().find(|stack| stack.parts.contains(&part))?;
        Some(format!("{layer}{}{}", stack.name, if kind == "bias" { "_bias" } else { "" }))
    };
    published().filter(|_| stacked).unwrap_or_else(|| name.to_owned())
}

/// The layer's part of a stacked tensor's name, the stack, and what the tensor holds.
fn stack_of(name: &str) -> Option<(&str, Stack, (&str, Content, &'static str))> {
    [GATE_UP, DOWN].into_iter().find_map(|stack| {
        let (layer, end) = name.split_once(stack.name)?;
        let content = CONTENTS.into_iter().find(|(suffix, ..)| *suffix == end)?;
        Some((layer, stack, content))
    })
}

/// The number of each expert's matrices in a tensor that has one for each expert, or one for all.
fn each_whole(stored: &StoredTensor, stack: Stack, experts: u64, kind: &str) -> Vec<(String, StoredTensor)> {
    let size = stored.format.and_then(|format| format.bytes(1)).unwrap_or(0);
    let count: u64 = stored.shape.iter().product();
    let each = (0..experts).flat_map(|expert| stack.parts.iter().map(move |part| (expert, part)));
    each.map(|(expert, part)| {
        let own = stored.shape.len() == 1 && count == experts;
        let (start, shape) = if own { (expert * size, vec![1]) } else { (0, stored.shape.clone()) };
        let order = RowOrder::Apart(1);
        let tensor = StoredTensor { start: stored.start + start, shape, order, ..stored.clone() };
        (format!("experts.{expert}.{part}.{kind}"), tensor)
    })
    .collect()
}

/// Where the exponents of the blocks `name` are: the shard's number and the first byte.
fn scales_of(
    model: &Model,
    shards: &[Shard],
    number: usize,
    name: &str,
    blocks: &StoredTensor,
) -> Result<(usize, u64), ExecutorError> {
    let scales = format!("{}_scales", name.trim_end_matches("_blocks"));
    let wanted = &blocks.shape[..blocks.shape.len().saturating_sub(1)];
    let missing = || ExecutorError::MissingTensor {
        path: shards[number].path.clone(),
        tensor: scales.clone(),
        model: model.name.clone(),
        expected: wanted.to_vec(),
    };
    let found = shards.iter().zip(0..).find_map(|(shard, at)| Some((at, shard, shard.tensors.get(&scales)?)));
    let (at, shard, stored) = found.ok_or_else(missing)?;
    if stored.shape != wanted {
        let (expected, found) = (wanted.to_vec(), stored.shape.clone());
        return Err(ExecutorError::Shape { path: shard.path.clone(), tensor: scales, expected, found });
    }
    Ok((at, stored.start))
}

/// The tensors of each expert in a stacked one. Gates and ups alternate, or all gates come first.
/// Where the shape is not that of a stack there are none, and the model's tensors are then missing.
fn unstack(
    stored: &StoredTensor,
    stack: Stack,
    in_turn: bool,
    (content, kind): (Content, &str),
    scales: Option<(usize, u64)>,
) -> Vec<(String, StoredTensor)> {
    let parts = stack.parts.len() as u64;
    let (experts, rows, columns) = match (content, &stored.shape[..]) {
        (Content::Columns, &[experts, inputs, outputs]) => (experts, outputs, inputs),
        (Content::Rows, &[experts, outputs, inputs]) => (experts, outputs, inputs),
        (Content::Bias, &[experts, outputs]) => (experts, outputs, 1),
        (Content::Blocks, &[experts, outputs, blocks, bytes]) if bytes == BLOCK as u64 => {
            (experts, outputs, blocks * VALUES)
        }
        _ => return vec![],
    };
    // Bytes are pairs of 4-bit floats, which stand for two inputs.
    let pairs = stored.format_name == "U8" && kind == "weight" && content != Content::Blocks;
    let format = match content {
        Content::Blocks => Some(TensorFormat::Blocks(DType::Mxfp4)),
        _ if pairs => Some(TensorFormat::Fp4),
        _ => stored.format,
    };
    // Powers of two are bytes of which no format is known yet.
    let element = stored.format.and_then(|format| format.bytes(1)).unwrap_or(1);
    let tensor = |expert: u64, part: u64| {
        let (first, apart) = if in_turn { (part, parts) } else { (part * (rows / parts), 1) };
        let row = expert * rows + first;
        let (start, order) = match (content, scales) {
            (Content::Bias, _) => (row * element, RowOrder::Apart(apart)),
            (Content::Rows, _) => (row * columns * element, RowOrder::Apart(apart)),
            (Content::Columns, _) => {
                let order = RowOrder::Columns { width: rows, apart };
                ((expert * rows * columns + first) * element, order)
            }
            (Content::Whole, _) | (Content::Blocks, None) => {
                unreachable!("blocks come with their exponents, and numbers of matrices have no rows")
            }
            (Content::Blocks, Some((shard, scales))) => {
                let blocks = row * (columns / VALUES);
                let order = RowOrder::Scaled { apart, shard, scales: scales + blocks };
                (blocks * BLOCK as u64, order)
            }
        };
        let shape = match content {
            Content::Bias => vec![rows / parts],
            _ if pairs => vec![rows / parts, 2 * columns],
            _ => vec![rows / parts, columns],
        };
        StoredTensor { format, shape, start: stored.start + start, order, ..stored.clone() }
    };
    let each = (0..experts).flat_map(|expert| (0..parts).map(move |part| (expert, part)));
    each.map(|(expert, part)| {
        let name = format!("experts.{expert}.{}.{kind}", stack.parts[part as usize]);
        (name, tensor(expert, part))
    })
    .collect()
}

/// Bytes of what lies in one place of a matrix, and how many a row has: numbers, or pairs of them.
fn cells(stored: &StoredTensor) -> (u64, u64) {
    match stored.format {
        Some(TensorFormat::Fp4) => (1, stored.shape[1] / 2),
        format => (format.and_then(|format| format.bytes(1)).unwrap_or(1), stored.shape[1]),
    }
}

/// Reads the matrix of which the rows of `stored` are columns into `whole`, once.
pub(in crate::weights) fn read_columns(
    shard: &Shard,
    stored: &StoredTensor,
    [width, apart]: [u64; 2],
    whole: &mut Vec<u8>,
) -> Result<(), ExecutorError> {
    if !whole.is_empty() {
        return Ok(());
    }
    let (size, columns) = cells(stored);
    let places = (columns - 1) * width + (stored.shape[0] - 1) * apart + 1;
    whole.resize((places * size) as usize, 0);
    shard.read(whole, stored.start)
}

/// Fills `rows` with rows from row `first` on, each a column of the matrix `whole`.
pub(in crate::weights) fn gather_columns(
    whole: &[u8],
    stored: &StoredTensor,
    [width, apart]: [u64; 2],
    first: u64,
    rows: &mut [u8],
) {
    let (size, columns) = cells(stored);
    let size = size as usize;
    for (row, out) in rows.chunks_exact_mut(columns as usize * size).enumerate() {
        let at = (first as usize + row) * apart as usize;
        for (column, out) in out.chunks_exact_mut(size).enumerate() {
            let from = (column * width as usize + at) * size;
            out.copy_from_slice(&whole[from..from + size]);
        }
    }
}

/// Reads blocks and their exponents, and joins them to ggml's MXFP4 blocks: the exponent, then the
/// numbers.
pub(in crate::weights) fn read_scaled(
    [shard, scale_shard]: [&Shard; 2],
    [start, scales_start]: [u64; 2],
    out: &mut [u8],
) -> Result<(), ExecutorError> {
    let count = out.len() / (1 + BLOCK);
    let (mut blocks, mut scales) = (vec![0; count * BLOCK], vec![0; count]);
    shard.read(&mut blocks, start)?;
    scale_shard.read(&mut scales, scales_start)?;
    for ((out, block), scale) in out.chunks_exact_mut(1 + BLOCK).zip(blocks.chunks_exact(BLOCK)).zip(scales) {
        out[0] = scale;
        part_neighbours(block, &mut out[1..]);
    }
    Ok(())
}

/// Rewrites 4-bit numbers of which neighbours share a byte as ggml has them: the low halves are the
/// first half of all numbers.
pub(in crate::weights) fn part_neighbours(pairs: &[u8], out: &mut [u8]) {
    let number = |index: usize| pairs[index / 2] >> (index % 2 * 4) & 15;
    out.iter_mut().enumerate().for_each(|(i, pair)| *pair = number(i) | number(i + pairs.len()) << 4);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn stored(format: Option<TensorFormat>, shape: &[u64], start: u64) -> StoredTensor {
        let (format_name, norms_include_one) = ("test".to_owned(), false);
        StoredTensor {
            format,
            format_name,
            shape: shape.to_vec(),
            start,
            norms_include_one,
            negated_exp: false,
            order: RowOrder::Same,
        }
    }

    #[test]
    fn a_row_of_an_expert_is_its_column_of_the_stack() {
        // Two experts of 3 inputs and 4 outputs: gate, up, gate, up.
        let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let mut file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        file.write_all(&bytes).expect("written");
        let shard = Shard::new("test".as_ref(), Default::default(), file);
        let stack = stored(Some(TensorFormat::F32), &[2, 3, 4], 0);
        let tensors = unstack(&stack, GATE_UP, true, (Content::Columns, "weight"), None);
        let names: Vec<_> = tensors.iter().map(|(name, _)| &name[8..]).collect();
        assert_eq!(
            names,
            ["0.gate_proj.weight", "0.up_proj.weight", "1.gate_proj.weight", "1.up_proj.weight"]
        );
        for (index, (_, tensor)) in tensors.iter().enumerate() {
            assert_eq!(tensor.shape, [2, 3]);
            let RowOrder::Columns { width, apart } = tensor.order else { panic!("{:?}", tensor.order) };
            let (mut whole, mut rows) = (vec![], vec![0; 24]);
            read_columns(&shard, tensor, [width, apart], &mut whole).expect("read");
            gather_columns(&whole, tensor, [width, apart], 0, &mut rows);
            let (expert, part) = (index / 2, index % 2);
            let wanted = (0..6).map(|i| (12 * expert + i % 3 * 4 + 2 * (i / 3) + part) as f32);
            let mut found = vec![0.0; 6];
            TensorFormat::F32.decode(&rows, &mut found);
            assert_eq!(found, wanted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn blocks_and_their_exponents_become_the_numbers_that_they_stand_for() {
        // One expert, 2 outputs (gate and up) of 32 inputs. Number i of the gate is i mod 16.
        let gate: Vec<u8> = (0..16u8).map(|i| (2 * i % 16) | (((2 * i + 1) % 16) << 4)).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[&gate[..], &[0x22; 16], &[128, 126]].concat()).expect("written");
        let shard = Shard::new("test".as_ref(), Default::default(), file);
        let tensors = unstack(
            &stored(None, &[1, 2, 1, 16], 0),
            GATE_UP,
            true,
            (Content::Blocks, "weight"),
            Some((0, 32)),
        );
        let read = |tensor: &StoredTensor| {
            let RowOrder::Scaled { scales, .. } = tensor.order else { panic!("{:?}", tensor.order) };
            let (mut bytes, mut values) = (vec![0; 17], vec![0.0; 32]);
            read_scaled([&shard; 2], [tensor.start, scales], &mut bytes).expect("read");
            TensorFormat::Blocks(DType::Mxfp4).decode(&bytes, &mut values);
            values
        };
        let halves = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let sixteen: Vec<f32> =
            halves.into_iter().chain(halves.map(|half| -half)).map(|half| 2.0 * half).collect();
        assert_eq!(read(&tensors[0].1), [&sixteen[..], &sixteen].concat());
        assert_eq!(read(&tensors[1].1), [0.5; 32]);
    }
}
