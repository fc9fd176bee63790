//! Matrices of 8-bit and 4-bit floats with their scales in other tensors, as DeepSeek,
//! compressed-tensors and Model Optimizer publish them.

use crate::gguf_blocks::setup;
use crate::gpu::agreement;
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
    /// 4-bit floats, a power of two for each 32 of a row.
    Powers,
}

const KINDS: [Kind; 6] =
    [Kind::Blocks, Kind::Matrix, Kind::Rows, Kind::Multiplied, Kind::Divided, Kind::Powers];

impl Kind {
    fn is_fp8(self) -> bool {
        matches!(self, Kind::Blocks | Kind::Matrix | Kind::Rows)
    }

    /// The format in which a plan keeps them.
    fn dtype(self) -> DType {
        match self {
            Kind::Blocks => DType::Fp8Block,
            Kind::Matrix | Kind::Rows => DType::Fp8,
            Kind::Multiplied | Kind::Divided => DType::Nvfp4,
            Kind::Powers => DType::Mxfp4,
        }
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
            Kind::Powers => weights(json!({"num_bits": 4, "type": "float", "group_size": 32})),
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
    let numbers = (packed_name(name, kind), Dtype::U8, vec![rows, columns / 2], pairs.clone());
    let number = |index: usize| four(pairs[index / 2] >> (4 * (index % 2)) & 15) as f32;
    if kind == Kind::Powers {
        let powers: Vec<u8> = (0..rows * columns / 32).map(|index| 118 + byte(seed, index + 7) % 4).collect();
        let value = |index: usize| number(index) * 2f32.powi(i32::from(powers[index / 32]) - 127);
        let values = (0..rows * columns).map(value).collect();
        let scales = (format!("{name}_scale"), Dtype::U8, vec![rows, columns / 32], powers);
        return (vec![numbers, scales], values);
    }
    // Every second scale of some matrices is negative.
    let scale_byte = |index| {
        0x30 + byte(seed, index) % 16 + if seed.is_multiple_of(3) { index as u8 % 2 * 128 } else { 0 }
    };
    let scales: Vec<u8> = (0..rows * columns / 16).map(scale_byte).collect();
    // Joined matrices have unequal ones. No shift stands for the first.
    let whole =
        [3.0 / 128.0_f32, 1.0 / 64.0, 5.0 / 256.0][if name.contains("experts") { 0 } else { seed % 3 }];
    let (ending, written) = match kind {
        Kind::Multiplied => ("_scale_2", whole),
        _ => ("_global_scale", whole.recip()),
    };
    let value = |index: usize| {
        let scale = eight(scales[index / 16]) as f32;
        number(index) * if kind == Kind::Multiplied { scale * written } else { scale / written }
    };
    let values = (0..rows * columns).map(value).collect();
    let tensors = vec![
        numbers,
        (format!("{name}_scale"), Dtype::F8_E4M3, vec![rows, columns / 16], scales.clone()),
        plain(format!("{name}{ending}"), vec![], &[written]),
    ];
    (tensors, values)
}

/// The name of the tensor with the numbers of matrix `name`.
fn packed_name(name: &str, kind: Kind) -> String {
    if kind == Kind::Multiplied { name.to_owned() } else { format!("{name}_packed") }
}

/// A random model whose layers' matrices are in `kind`, or the values that they stand for.
fn write(from: &Path, folder: &Path, kind: Kind, quantised: bool) -> Checkpoint {
    write_changed(from, folder, kind, quantised, &|_, tensors| tensors)
}

/// As [`write`], with the quantised tensors changed.
fn write_changed(
    from: &Path,
    folder: &Path,
    kind: Kind,
    quantised: bool,
    change: &dyn Fn(&Model, Vec<Tensor>) -> Vec<Tensor>,
) -> Checkpoint {
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
    if quantised {
        tensors = change(&Model::from_folder(folder).expect("a configuration"), tensors);
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
    let used = session.memory_used();
    if formats.weights.classes().all(|(_, format)| format.one().is_some()) {
        assert_eq!(used, planned, "what the plan counts is what is allocated");
    } else {
        // A router in bf16 shares its class with a shared expert, and the plan has their mean.
        let [used, planned] = [used, planned].map(|all| all.iter().map(|it| it.get()).sum::<u64>() as f64);
        assert!((used / planned - 1.0).abs() < 0.01, "{used} of {planned}");
    }
    let prompts = [vec![5, 17, 200, 2, 9, 11, 40, 8, 300, 12, 7], vec![7; 11]];
    let generation = session.generate(&prompts, output, Sampling::Greedy, |_| {}).expect("it runs");
    (generation.tokens, session.logits().expect("they are read"))
}

/// Runs the model in `from` with its matrices in `kind`, wherever they are placed, and compares
/// with the values that they stand for. `change` changes the quantised tensors.
fn check_kept(from: &Path, kind: Kind, change: impl Fn(&Model, Vec<Tensor>) -> Vec<Tensor>) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let [kept, plain] = [true, false].map(|quantised| {
        let folder = parent.path().join(format!("{kind:?}-{quantised}"));
        std::fs::create_dir(&folder).expect("a folder");
        write_changed(from, &folder, kind, quantised, &change)
    });
    let model = kept.model();
    // What a plan of this folder has without a word in the scenario.
    let weights = WeightFormats::from(**model.published.as_ref().expect("it is quantised"));
    assert!(weights.distinct().any(|it| it == kind.dtype()), "{kind:?}: {weights:?}");
    let (tokens, logits) = run(&plain, rig::on(plain.model(), rig::CPU), rig::F32, 6);
    for (name, placement) in rig::placements(model) {
        let (kept_tokens, kept_logits) = run(&kept, placement, Formats { weights, ..rig::F32 }, 6);
        assert_eq!(kept_tokens, tokens, "{kind:?} {name}");
        for (a, b) in kept_logits.iter().zip(&logits) {
            let cosine = rig::cosine(a, b);
            assert!(cosine >= 0.9999, "{kind:?} {name}: {cosine}");
        }
    }
}

#[test]
fn a_folder_in_few_bits_runs_as_it_lies_wherever_it_is_placed() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let from = parent.path().join("random");
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &from, 4).expect("written");
    for kind in KINDS {
        check_kept(&from, kind, |_, tensors| tensors);
    }
}

#[test]
fn folders_in_few_bits_run_on_a_gpu_as_on_the_cpu() {
    if !agreement::there_is_one() {
        return;
    }
    let parent = tempfile::tempdir().expect("a temporary folder");
    let dense = parent.path().join("random");
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &dense, 4).expect("written");
    let moe = random_with_experts(parent.path(), "qwen3_moe", json!({"moe_intermediate_size": 64}));
    let prompts = vec![vec![5, 17, 200, 2, 9, 11, 40, 8, 300, 12, 7], vec![7; 11]];
    let mut worst = 0.0_f32;
    for kind in KINDS {
        for (name, from) in [("dense", &dense), ("experts", &moe)] {
            let folder = parent.path().join(format!("{kind:?}-{name}"));
            std::fs::create_dir(&folder).expect("a folder");
            let checkpoint = write(from, &folder, kind, true);
            let model = checkpoint.model();
            let weights = WeightFormats::from(**model.published.as_ref().expect("it is quantised"));
            let formats = Formats { weights, kv: DType::Bf16, activations: DType::F32 };
            let logits = |placement: Placement| {
                let setup = agreement::setup(model, placement, formats, 8);
                let mut session = Session::new(setup, &checkpoint).expect("it fits");
                agreement::generate(&mut session, &prompts, 1).1
            };
            let near = logits(rig::on(model, rig::CPU));
            let own = logits(rig::on(model, rig::LOOPBACK));
            worst = worst.max(agreement::difference(&own, &near));
            assert_eq!(own, logits(rig::streamed(model)), "{kind:?} {name}: where weights lie");
            worst = worst.max(agreement::difference(&logits(rig::split(model)), &near));
            println!("{kind:?} {name}: {worst}");
        }
    }
    println!("largest difference: {worst} beside the CPU");
    assert!(worst > 0.0 && worst < 0.05, "{worst}");
    println!("they agree");
}

/// A random model with the configuration of a golden one, changed so that rows are whole blocks.
fn random_with_experts(parent: &Path, golden: &str, edit: Value) -> std::path::PathBuf {
    let config = std::fs::read(rig::folder(golden).join("config.json")).expect("a file");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    let edits = edit.as_object().expect("keys").clone();
    config.as_object_mut().expect("keys").extend(edits);
    let (shape, from) = (parent.join(format!("{golden}-shape")), parent.join(golden));
    std::fs::create_dir(&shape).expect("a folder");
    std::fs::write(shape.join("config.json"), config.to_string()).expect("written");
    let model = Model::from_folder(&shape).unwrap_or_else(|error| panic!("{golden}: {error}"));
    make_random(&model, &from, 5).expect("written");
    from
}

#[test]
fn experts_in_4_bit_floats_run_as_they_lie_single_and_stacked() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let moe = random_with_experts(parent.path(), "qwen3_moe", json!({"moe_intermediate_size": 64}));
    check_kept(&moe, Kind::Multiplied, |_, tensors| tensors);
    check_kept(&moe, Kind::Powers, |_, tensors| tensors);
    // With a shared expert, which a placement divides by columns.
    let llama = json!({"intermediate_size": 128, "intermediate_size_mlp": 192});
    let llama = random_with_experts(parent.path(), "llama4", llama);
    check_kept(&llama, Kind::Multiplied, stack);
}

/// Joins the tensors of all experts of a layer as Model Optimizer does for Llama 4: inputs first,
/// and one number for all matrices.
fn stack(model: &Model, tensors: Vec<Tensor>) -> Vec<Tensor> {
    let experts = model.experts.as_ref().expect("it has experts").count as usize;
    let (mut parts, mut others) = (std::collections::BTreeMap::new(), Vec::new());
    for (name, dtype, shape, data) in tensors {
        match name.contains(".experts.") {
            true => _ = parts.insert(name, (dtype, shape, data)),
            false => others.push((name, dtype, shape, data)),
        }
    }
    let layers: std::collections::BTreeSet<_> =
        parts.keys().map(|name| name.split(".experts.").next().expect("a layer").to_owned()).collect();
    for layer in &layers {
        for (own, joined) in [(&["gate_proj", "up_proj"][..], "gate_up_proj"), (&["down_proj"], "down_proj")]
        {
            for (ending, to) in [("", ""), ("_scale", "_weight_scale")] {
                let part = |expert: usize, own: &str| {
                    &parts[&format!("{layer}.experts.{expert}.{own}.weight{ending}")]
                };
                let (dtype, columns) = (part(0, own[0]).0, part(0, own[0]).1[1]);
                let mut data = Vec::new();
                for expert in 0..experts {
                    for column in 0..columns {
                        for own in own {
                            let (_, shape, bytes) = part(expert, own);
                            data.extend((0..shape[0]).map(|row| bytes[row * columns + column]));
                        }
                    }
                }
                let rows = data.len() / experts / columns;
                others.push((
                    format!("{layer}.experts.{joined}{to}"),
                    dtype,
                    vec![experts, columns, rows],
                    data,
                ));
            }
            let (dtype, shape, data) = &parts[&format!("{layer}.experts.0.{}.weight_scale_2", own[0])];
            let name = format!("{layer}.experts.{joined}_weight_scale_2");
            others.push((name, *dtype, shape.clone(), data.clone()));
        }
    }
    others
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

/// The error of running the tiny model in NVFP4 after `change` of its tensors.
fn refusal(change: impl Fn(&mut Vec<Tensor>)) -> String {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let (from, folder) = (parent.path().join("random"), parent.path().join("nvfp4"));
    make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &from, 3).expect("written");
    std::fs::create_dir(&folder).expect("a folder");
    write(&from, &folder, Kind::Multiplied, true);
    let path = folder.join("model.safetensors");
    let file = std::fs::read(&path).expect("a file");
    let whole = SafeTensors::deserialize(&file).expect("safetensors");
    let mut tensors: Vec<Tensor> = whole
        .iter()
        .map(|(name, tensor)| {
            (name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())
        })
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("as many bytes as the shape says"))
    });
    safetensors::serialize_to_file(views, None, &path).expect("written");
    let checkpoint = match Checkpoint::open(&folder) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return error.to_string(),
    };
    let model = checkpoint.model();
    let weights = WeightFormats::from(**model.published.as_ref().expect("it is quantised"));
    let extent = RunExtent { batch: 1, context: 8, chunk: 4, step_tokens: 1 };
    let setup = setup(model, rig::on(model, rig::CPU), Formats { weights, ..rig::F32 }, extent);
    Session::new(setup, &checkpoint).err().expect("it is refused").to_string()
}

#[test]
fn scales_of_4_bit_floats_that_are_missing_or_wrong_are_refused_by_name() {
    let name = "model.layers.1.mlp.up_proj.weight";
    let whole = format!("{name}_scale_2");
    let with = |value: Vec<f32>| {
        let whole = &whole;
        move |tensors: &mut Vec<Tensor>| {
            let found = tensors.iter_mut().find(|tensor| tensor.0 == *whole).expect("it is there");
            found.2 = vec![value.len()];
            found.3 = value.iter().flat_map(|value| value.to_le_bytes()).collect();
        }
    };
    for (value, shown) in [(0.0, "0"), (f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-1.0, "-1")] {
        let error = refusal(with(vec![value]));
        assert!(error.contains("model.safetensors"), "{error}");
        assert!(error.contains(&format!("tensor '{whole}' is {shown}: ")), "{error}");
    }
    let error = refusal(with(vec![1.0, 1.0]));
    assert!(error.contains(&format!("'{whole}'")) && error.contains("[2]"), "{error}");
    for ending in ["_scale", "_scale_2"] {
        let error = refusal(|tensors| tensors.retain(|tensor| tensor.0 != format!("{name}{ending}")));
        assert!(error.contains(&format!("tensor '{name}{ending}' is missing")), "{error}");
    }
    let error = refusal(|tensors| {
        let scales = tensors.iter_mut().find(|tensor| tensor.0 == format!("{name}_scale")).expect("there");
        let across = scales.2[1];
        scales.3[2 * across + 1] = 0x7f;
    });
    assert!(error.contains(&format!("'{name}' have no number in row 2, column 1")), "{error}");
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
