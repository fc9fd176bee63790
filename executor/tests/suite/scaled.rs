//! Matrices of 8-bit and 4-bit floats with their scales in other tensors, as DeepSeek,
//! compressed-tensors and Model Optimizer publish them.

use crate::gguf_blocks::setup;
use crate::rig;
use executor::{Checkpoint, Sampling, Session, make_random};
use hwprofiles::DType;
use planner::{PhasePrograms, Placement, RunExtent};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use scenarios::{Formats, Model, WeightFormats};
use serde_json::{Value, json};
use std::path::Path;

/// A tensor: name, format, shape, bytes.
type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// How a folder keeps its matrices.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// A scale for each block of 128 × 128.
    Blocks,
    /// A scale for the matrix.
    Matrix,
    /// A scale for each row, in bf16.
    Rows,
    /// 4-bit floats, a scale for each 16 of a row, and one that multiplies them.
    Multiplied,
    /// The same under other names, with one that divides them.
    Divided,
}

const KINDS: [Kind; 5] = [Kind::Blocks, Kind::Matrix, Kind::Rows, Kind::Multiplied, Kind::Divided];

impl Kind {
    fn is_fp8(self) -> bool {
        matches!(self, Kind::Blocks | Kind::Matrix | Kind::Rows)
    }

    fn config(self) -> Value {
        let weights =
            |kind: Value| json!({"config_groups": {"group_0": {"weights": kind}}, "ignore": ["lm_head"]});
        let mut config = match self {
            Kind::Blocks => json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            Kind::Matrix => weights(json!({"num_bits": 8, "type": "float", "strategy": "tensor"})),
            Kind::Rows => weights(json!({"num_bits": 8, "type": "float", "strategy": "channel"})),
            Kind::Multiplied => {
                json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})
            }
            Kind::Divided => weights(json!({"num_bits": 4, "type": "float", "group_size": 16})),
        };
        if config.get("quant_method").is_none() {
            config["quant_method"] = json!("compressed-tensors");
        }
        config
    }
}

/// A byte with a fixed pattern, never E4M3's one that is no number.
fn byte(seed: usize, index: usize) -> u8 {
    let byte = (((seed + index) * 2_654_435_761) >> 9) as u8;
    if byte & 127 == 127 { byte & 0x7e } else { byte }
}

/// The value of an E4M3 number.
fn eight(byte: u8) -> f64 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let value = if exponent == 0 { fraction / 512.0 } else { (8.0 + fraction) * 2f64.powi(exponent - 10) };
    if byte < 128 { value } else { -value }
}

/// The value of an E2M1 number.
fn four(bits: u8) -> f64 {
    let value = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits & 7)];
    if bits & 8 == 0 { value } else { -value }
}

/// The tensors of a matrix, and the values that they stand for.
fn matrix(name: &str, [rows, columns]: [usize; 2], kind: Kind) -> (Vec<Tensor>, Vec<f32>) {
    let seed: usize = name.bytes().map(usize::from).sum();
    // Powers of two times odd numbers: scales that no shift can stand for.
    let scale = |index: usize| (3 + index % 5) as f32 / 65_536.0;
    let plain = |name: String, shape: Vec<usize>, values: &[f32]| -> Tensor {
        (name, Dtype::F32, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    };
    if kind.is_fp8() {
        let bytes: Vec<u8> = (0..rows * columns).map(|index| byte(seed, index)).collect();
        let across = columns.div_ceil(128);
        let (count, place): (usize, &dyn Fn(usize, usize) -> usize) = match kind {
            Kind::Blocks => (rows.div_ceil(128) * across, &|row, column| row / 128 * across + column / 128),
            Kind::Rows => (rows, &|row, _| row),
            _ => (1, &|_, _| 0),
        };
        let scales: Vec<f32> = (0..count).map(scale).collect();
        let tensor = match kind {
            Kind::Blocks => plain(format!("{name}_scale_inv"), vec![count / across, across], &scales),
            Kind::Matrix => plain(format!("{name}_scale"), vec![1], &scales),
            _ => {
                let halves = scales.iter().flat_map(|scale| ((scale.to_bits() >> 16) as u16).to_le_bytes());
                (format!("{name}_scale"), Dtype::BF16, vec![rows, 1], halves.collect())
            }
        };
        let value =
            |index: usize| (eight(bytes[index]) as f32) * scales[place(index / columns, index % columns)];
        let values = (0..rows * columns).map(value).collect();
        return (vec![(name.to_owned(), Dtype::F8_E4M3, vec![rows, columns], bytes), tensor], values);
    }
    let pairs: Vec<u8> = (0..rows * columns / 2).map(|index| byte(seed, index)).collect();
    let scales: Vec<u8> = (0..rows * columns / 16).map(|index| 0x30 + byte(seed, index) % 16).collect();
    let whole = 3.0 / 128.0_f32;
    let (numbers, ending, written) = match kind {
        Kind::Multiplied => (name.to_owned(), "_scale_2", whole),
        _ => (format!("{name}_packed"), "_global_scale", 128.0),
    };
    let value = |index: usize| {
        let scale = eight(scales[index / 16]) as f32;
        let scale = if kind == Kind::Multiplied { scale * whole } else { scale / 128.0 };
        four(pairs[index / 2] >> (4 * (index % 2)) & 15) as f32 * scale
    };
    let values = (0..rows * columns).map(value).collect();
    let tensors = vec![
        (numbers, Dtype::U8, vec![rows, columns / 2], pairs.clone()),
        (format!("{name}_scale"), Dtype::F8_E4M3, vec![rows, columns / 16], scales.clone()),
        plain(format!("{name}{ending}"), vec![], &[written]),
    ];
    (tensors, values)
}

/// A random model whose layers' matrices are in `kind`, or the values that they stand for.
fn write(from: &Path, folder: &Path, kind: Kind, quantised: bool) -> Checkpoint {
    let config = std::fs::read(from.join("config.json")).expect("a file");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    if quantised {
        config["quantization_config"] = kind.config();
    }
    std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
    let file = std::fs::read(from.join("model.safetensors")).expect("a file");
    let mut tensors: Vec<Tensor> = Vec::new();
    for (name, tensor) in SafeTensors::deserialize(&file).expect("safetensors").iter() {
        match tensor.shape() {
            &[rows, columns] if name.ends_with("_proj.weight") => {
                let (parts, values) = matrix(name, [rows, columns], kind);
                if quantised {
                    tensors.extend(parts);
                } else {
                    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    tensors.push((name.to_owned(), Dtype::F32, vec![rows, columns], bytes));
                }
            }
            shape => tensors.push((name.to_owned(), tensor.dtype(), shape.to_vec(), tensor.data().to_vec())),
        }
    }
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("as many bytes as the shape says"))
    });
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("written");
    Checkpoint::open(folder).unwrap_or_else(|error| panic!("{kind:?}: {error}"))
}

#[test]
fn scaled_numbers_run_as_the_values_that_they_stand_for() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    // The network's width, 192, is a block of 128 and half of one.
    let from = parent.path().join("random");
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &from, 3).expect("written");
    for kind in KINDS {
        let run = |quantised: bool| {
            let folder = parent.path().join(format!("{kind:?}-{quantised}"));
            std::fs::create_dir(&folder).expect("a folder");
            let checkpoint = write(&from, &folder, kind, quantised);
            let extent = RunExtent { batch: 1, context: 64, chunk: 9, step_tokens: 1 };
            let mut session = rig::session(&checkpoint, rig::split(checkpoint.model()), rig::F32, extent);
            let prompt = (0..40).map(|i| i * 7 % 384).collect();
            session.generate(&[prompt], 6, Sampling::Greedy, |_| {}).expect("it runs");
            session.logits().expect("they are read")
        };
        let (scaled, plain) = (run(true), run(false));
        assert!(scaled == plain, "{kind:?}");
        assert!(plain[0].iter().all(|logit| logit.is_finite()) && plain[0].iter().any(|logit| *logit != 0.0));
    }
}

/// Tokens and last logits of two sequences, from memories that hold the planned bytes.
fn run(
    checkpoint: &Checkpoint,
    placement: Placement,
    formats: Formats,
    output: u64,
) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let extent = RunExtent { batch: 2, context: 32, chunk: 9, step_tokens: 1 };
    let setup = setup(checkpoint.model(), placement, formats, extent);
    let programs = PhasePrograms::lower(&setup.machine, &setup.model, &setup.placement).expect("it lowers");
    let usage = planner::usage(&setup.machine, &setup.model, &formats, &setup.placement, &programs, &extent);
    let mut session = Session::new(setup, checkpoint).expect("it fits");
    let planned: Vec<_> = usage.iter().map(planner::MemoryUsage::total).collect();
    assert_eq!(session.memory_used(), planned, "what the plan counts is what is allocated");
    let prompts = [vec![5, 17, 200, 2, 9, 11, 40, 8, 300, 12, 7], vec![7; 11]];
    let generation = session.generate(&prompts, output, Sampling::Greedy, |_| {}).expect("it runs");
    (generation.tokens, session.logits().expect("they are read"))
}

#[test]
fn a_folder_in_fp8_runs_as_it_lies_wherever_it_is_placed() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let from = parent.path().join("random");
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &from, 3).expect("written");
    for kind in KINDS.into_iter().filter(|kind| kind.is_fp8()) {
        let [kept, plain] = [true, false].map(|quantised| {
            let folder = parent.path().join(format!("{kind:?}-{quantised}"));
            std::fs::create_dir(&folder).expect("a folder");
            write(&from, &folder, kind, quantised)
        });
        let model = kept.model();
        // What a plan of this folder has without a word in the scenario.
        let weights = WeightFormats::from(**model.published.as_ref().expect("it is quantised"));
        let dtype = if kind == Kind::Blocks { DType::Fp8Block } else { DType::Fp8 };
        assert!(weights.distinct().any(|it| it == dtype), "{kind:?}: {weights:?}");
        let (tokens, logits) = run(&plain, rig::on(plain.model(), rig::CPU), rig::F32, 6);
        for (name, placement) in rig::placements(model) {
            let (kept_tokens, kept_logits) = run(&kept, placement, Formats { weights, ..rig::F32 }, 6);
            for (a, b) in kept_logits.iter().zip(&logits) {
                let cosine = rig::cosine(a, b);
                assert!(cosine >= 0.9999, "{kind:?} {name}: {cosine}");
            }
            assert_eq!(kept_tokens, tokens, "{kind:?} {name}");
        }
    }
}

#[test]
fn a_number_that_is_none_is_refused_by_its_place() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let (from, folder) = (parent.path().join("random"), parent.path().join("blocks"));
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &from, 3).expect("written");
    std::fs::create_dir(&folder).expect("a folder");
    let weights =
        *write(&from, &folder, Kind::Blocks, true).model().published.clone().expect("it is quantised");
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("a file");
    let name = "model.layers.0.mlp.down_proj.weight";
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let data = tensors.tensor(name).expect("it is there");
    let (columns, start) = (data.shape()[1], data.data().as_ptr() as usize - bytes.as_ptr() as usize);
    bytes[start + 3 * columns + 5] = 0xff;
    std::fs::write(&path, bytes).expect("written");
    let checkpoint = Checkpoint::open(&folder).expect("headers are right");
    let formats = Formats { weights: weights.into(), ..rig::F32 };
    let extent = RunExtent { batch: 1, context: 8, chunk: 4, step_tokens: 1 };
    let model = checkpoint.model();
    let setup = setup(model, rig::on(model, rig::CPU), formats, extent);
    let error = Session::new(setup, &checkpoint).err().expect("it is no number").to_string();
    assert!(error.contains(&format!("tensor '{name}' has 0xff in row 3, column 5")), "{error}");
}

#[test]
fn values_of_other_folders_are_rounded_to_fp8_where_a_plan_says_so() {
    for name in ["llama_gqa", "qwen3_moe"] {
        let checkpoint = rig::checkpoint(name);
        let model = checkpoint.model();
        let exact = run(&checkpoint, rig::on(model, rig::CPU), rig::F32, 1).1;
        let formats = |dtype| Formats { weights: WeightFormats::all(dtype), ..rig::F32 };
        for placement in [rig::on(model, rig::CPU), rig::split(model), rig::streamed(model)] {
            let rounded = run(&checkpoint, placement, formats(DType::Fp8), 1).1;
            for (a, b) in rounded.iter().zip(&exact) {
                let cosine = rig::cosine(a, b);
                assert!((0.95..0.999_999).contains(&cosine), "{name}: {cosine}");
            }
        }
    }
}
