//! Experts in MXFP4, as gpt-oss is published.

use crate::rig;
use executor::{Checkpoint, Sampling};
use planner::RunExtent;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// The values of a number's lower three bits; the fourth is the sign.
const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Bytes with a fixed pattern.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| (((i + seed) * 2_654_435_761) >> 7) as u8).collect()
}

/// Blocks and exponents of a tensor of this name, as gpt-oss's folders have them, with scales from
/// 2⁻⁷ to 2⁻⁴. Each name has its own pattern.
fn pattern(name: &str, [experts, outputs, inputs]: [usize; 3]) -> (Vec<u8>, Vec<u8>) {
    let seed = name.bytes().map(usize::from).sum();
    let scales = bytes(experts * outputs * inputs / 32, 7);
    (bytes(experts * outputs * inputs / 2, seed), scales.iter().map(|b| 120 + b % 4).collect())
}

/// Every second row of the tensor from row `first` on, in ggml's blocks: the exponent, then bytes
/// with a number of the first half and one of the second half.
pub fn ggml_blocks(name: &str, sizes: [usize; 3], first: usize) -> Vec<u8> {
    let (blocks, scales) = pattern(name, sizes);
    let row = sizes[2] / 32;
    let mut out = Vec::new();
    for (at, block) in blocks.chunks(16).enumerate().filter(|(at, _)| at / row % 2 == first) {
        let number = |index: usize| block[index / 2] >> (index % 2 * 4) & 15;
        out.push(scales[at]);
        out.extend((0..16).map(|index| number(index) | number(index + 16) << 4));
    }
    out
}

/// The golden model `gpt_oss` in `folder`, with other gates and ups: in blocks, or as the numbers
/// that the blocks stand for.
pub fn write(folder: &Path, in_blocks: bool) -> Checkpoint {
    let from = rig::folder("gpt_oss");
    std::fs::copy(from.join("config.json"), folder.join("config.json")).expect("copied");
    let file = std::fs::read(from.join("model.safetensors")).expect("a golden file");
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, tensor) in SafeTensors::deserialize(&file).expect("safetensors").iter() {
        let &[experts, inputs, outputs] = tensor.shape() else {
            tensors.push((name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()));
            continue;
        };
        if !name.ends_with("gate_up_proj") {
            tensors.push((name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()));
            continue;
        }
        let (blocks, scales) = pattern(name, [experts, outputs, inputs]);
        if in_blocks {
            let shape = vec![experts, outputs, inputs / 32, 16];
            tensors.push((format!("{name}_blocks"), Dtype::U8, shape.clone(), blocks));
            tensors.push((format!("{name}_scales"), Dtype::U8, shape[..3].to_vec(), scales));
            continue;
        }
        let number = |expert: usize, output: usize, input: usize| {
            let at = (expert * outputs + output) * inputs + input;
            let bits = blocks[at / 2] >> (at % 2 * 4) & 15;
            let scale = (f32::from(scales[at / 32]) - 127.0).exp2();
            let sign = if bits & 8 == 0 { scale } else { -scale };
            sign * NUMBERS[usize::from(bits & 7)]
        };
        let numbers = (0..experts).flat_map(|expert| {
            (0..inputs).flat_map(move |input| (0..outputs).map(move |output| (expert, output, input)))
        });
        let data = numbers.flat_map(|(e, o, i)| number(e, o, i).to_le_bytes()).collect();
        tensors.push((name.to_owned(), Dtype::F32, tensor.shape().to_vec(), data));
    }
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("as many bytes as the shape says"))
    });
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("written");
    Checkpoint::open(folder).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn blocks_run_as_the_numbers_that_they_stand_for() {
    let run = |in_blocks: bool| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let checkpoint = write(folder.path(), in_blocks);
        let extent = RunExtent { batch: 1, context: 64, chunk: 9, step_tokens: 1 };
        let mut session = rig::session(&checkpoint, rig::split(checkpoint.model()), rig::F32, extent);
        let prompt = (0..40).map(|i| i * 7 % 384).collect();
        session.generate(&[prompt], 6, Sampling::Greedy, |_| {}).expect("it runs");
        session.logits().expect("they are read")
    };
    let (blocks, numbers) = (run(true), run(false));
    assert!(blocks == numbers && numbers[0].iter().any(|logit| *logit != 0.0));
}
