//! GGUF files with weights in blocks: a run that keeps the blocks gives the logits of a run with
//! the same values in f32.

use crate::gguf_writer::GgufFile;
use crate::gpu::agreement::{Case, difference, generate, there_is_one};
use crate::rig;
use executor::{Checkpoint, RunSetup, Sampling, Session};
use half::f16;
use hwprofiles::DType;
use planner::{Placement, RunExtent};
use rand::{Rng, SeedableRng, rngs::StdRng};
use scenarios::{Formats, Model, WeightFormats};
use std::path::Path;

const HIDDEN: u64 = 256;
const INNER: u64 = 512;
const VOCAB: u64 = 270;
const LAYERS: u32 = 2;

/// A format: ggml's number, values and bytes of a block, and where the block has f16 scales.
struct Format {
    dtype: DType,
    number: u32,
    block: (u64, usize),
    scales: &'static [usize],
}

const FORMATS: [Format; 9] = [
    Format { dtype: DType::Q4_0, number: 2, block: (32, 18), scales: &[0] },
    Format { dtype: DType::Q8_0, number: 8, block: (32, 34), scales: &[0] },
    Format { dtype: DType::Q4K, number: 12, block: (256, 144), scales: &[0] },
    Format { dtype: DType::Q5K, number: 13, block: (256, 176), scales: &[0] },
    Format { dtype: DType::Q6K, number: 14, block: (256, 210), scales: &[208] },
    Format { dtype: DType::Iq4Nl, number: 20, block: (32, 18), scales: &[0] },
    Format { dtype: DType::Iq4Xs, number: 23, block: (256, 136), scales: &[0] },
    Format { dtype: DType::Mxfp4, number: 39, block: (32, 17), scales: &[] },
    Format { dtype: DType::Nvfp4, number: 40, block: (64, 36), scales: &[] },
];

impl Format {
    /// Random blocks, whose values are about as large as those of trained weights.
    fn blocks(&self, values: u64, random: &mut StdRng) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..values / self.block.0 {
            let mut block: Vec<u8> = (0..self.block.1).map(|_| random.next_u32() as u8).collect();
            // The largest number times the largest scale of a group.
            let most = match self.dtype {
                DType::Q4_0 => 8.0,
                DType::Q8_0 | DType::Iq4Nl => 127.0,
                DType::Q4K => 15.0 * 63.0,
                DType::Q5K => 31.0 * 63.0,
                DType::Q6K => 32.0 * 128.0,
                _ => 127.0 * 32.0,
            };
            for &at in self.scales {
                block[at..at + 2].copy_from_slice(&f16::from_f32(0.1 / most).to_le_bytes());
            }
            match self.dtype {
                // The minimum is half of the largest value, so that values have both signs.
                DType::Q4K | DType::Q5K => {
                    block[2..4].copy_from_slice(&f16::from_f32(0.05 / 63.0).to_le_bytes());
                }
                DType::Mxfp4 => block[0] = 120 + block[0] % 3,
                DType::Nvfp4 => block[..4].iter_mut().for_each(|scale| *scale = 1 + *scale % 15),
                _ => {}
            }
            out.extend(block);
        }
        out
    }
}

/// A Llama whose matrices are in `format`, those of v in `other`.
fn write(path: &Path, format: &Format, other: &Format) {
    let mut file = GgufFile::new("llama");
    for (name, value) in [
        ("block_count", u64::from(LAYERS)),
        ("context_length", 128),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", INNER),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("vocab_size", VOCAB),
        ("rope.dimension_count", 64),
    ] {
        file.number(name, value);
    }
    file.real("attention.layer_norm_rms_epsilon", 1e-5);
    file.real("rope.freq_base", 10_000.0);
    let mut random = StdRng::seed_from_u64(7);
    let ones: Vec<u8> = (0..HIDDEN).flat_map(|_| 1f32.to_le_bytes()).collect();
    let mut matrix = |file: &mut GgufFile, name: &str, rows: u64, columns: u64, format: &Format| {
        let blocks = format.blocks(rows * columns, &mut random);
        file.tensor(name, &[columns, rows], format.number, &blocks);
    };
    matrix(&mut file, "token_embd.weight", VOCAB, HIDDEN, format);
    matrix(&mut file, "output.weight", VOCAB, HIDDEN, format);
    file.tensor("output_norm.weight", &[HIDDEN], 0, &ones);
    for layer in 0..LAYERS {
        let name = |word: &str| format!("blk.{layer}.{word}.weight");
        for (word, rows, columns, format) in [
            ("attn_q", HIDDEN, HIDDEN, format),
            ("attn_k", HIDDEN / 2, HIDDEN, format),
            ("attn_v", HIDDEN / 2, HIDDEN, other),
            ("attn_output", HIDDEN, HIDDEN, format),
            ("ffn_gate", INNER, HIDDEN, format),
            ("ffn_up", INNER, HIDDEN, format),
            ("ffn_down", HIDDEN, INNER, format),
        ] {
            matrix(&mut file, &name(word), rows, columns, format);
        }
        file.tensor(&name("attn_norm"), &[HIDDEN], 0, &ones);
        file.tensor(&name("ffn_norm"), &[HIDDEN], 0, &ones);
    }
    file.write(path);
}

/// As [`rig::setup`], on devices with some time for every format: times do not matter here.
pub fn setup(model: &Model, placement: Placement, formats: Formats, extent: RunExtent) -> RunSetup {
    with_rates(rig::setup(model, placement, formats, extent), &formats)
}

/// `setup` on devices with some time for every format.
pub fn with_rates(mut setup: RunSetup, formats: &Formats) -> RunSetup {
    for device in &mut setup.machine.devices {
        let rates = device.gemm[&DType::Bf16].clone();
        formats.weights.distinct().for_each(|dtype| _ = device.gemm.insert(dtype, rates.clone()));
    }
    setup
}

/// The tokens and the last logits of two sequences, in weights of `dtype`.
fn run(path: &Path, dtype: DType) -> (Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let checkpoint = Checkpoint::open(path).expect("it opens");
    let formats = Formats { weights: WeightFormats::all(dtype), ..rig::F32 };
    let extent = RunExtent { batch: 2, context: 32, chunk: 7, step_tokens: 1 };
    let model = checkpoint.model();
    let setup = setup(model, rig::on(model, rig::CPU), formats, extent);
    let mut session = Session::new(setup, &checkpoint).expect("it fits");
    let prompts = [vec![5, 17, 200, 2, 9, 11, 40, 8], vec![7; 8]];
    let generation = session.generate(&prompts, 4, Sampling::Greedy, |_| {}).expect("it runs");
    (generation.tokens, session.logits().expect("they are read"))
}

#[test]
fn a_run_that_keeps_the_files_blocks_has_the_logits_of_its_values_in_f32() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    for (index, format) in FORMATS.iter().enumerate() {
        // v in another format than q and k, as files mix them.
        let other = &FORMATS[(index + 4) % FORMATS.len()];
        write(&path, format, other);
        let (wanted, exact) = run(&path, DType::F32);
        let (tokens, logits) = run(&path, format.dtype);
        for (a, b) in logits.iter().zip(&exact) {
            assert!(b.iter().all(|value| value.is_finite()) && b.iter().any(|value| value.abs() > 1e-3));
            let cosine = rig::cosine(a, b);
            assert!(cosine >= 0.9999, "{}: {cosine}", format.dtype);
        }
        assert_eq!(tokens, wanted, "{}", format.dtype);
    }
}

/// Compares a GPU's session with the CPU's in the same formats: the tokens are the same, and the
/// logits nearly. Returns the GPU's logits.
fn compare(case: &mut Case<'_>, worst: &mut f32) -> Vec<Vec<f32>> {
    let prompts = [vec![5, 17, 200, 2, 9, 11, 40, 8, 100, 12, 7], vec![7; 11]];
    let (tokens, logits) = generate(&mut case.ours, &prompts, 4);
    let (same, near) = generate(&mut case.near, &prompts, 4);
    for ((prompt, ours), theirs) in prompts.iter().zip(&tokens).zip(&same) {
        case.tie(prompt, ours, theirs);
    }
    if same == tokens {
        *worst = worst.max(difference(&logits, &near));
    }
    println!("{}: the same tokens: {}, {worst}", case.name, same == tokens);
    logits
}

#[test]
fn files_in_blocks_run_on_a_gpu_as_on_the_cpu() {
    if !there_is_one() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    let mut worst = 0.0;
    for (index, format) in FORMATS.iter().enumerate() {
        write(&path, format, format);
        let checkpoint = Checkpoint::open(&path).expect("it opens");
        let model = checkpoint.model();
        let mut found = Vec::new();
        for (kind, placement) in rig::placements(model) {
            let varied = matches!(kind, "mixed" | "by phase");
            if kind == "all on cpu" || varied && format.dtype != DType::Q4K {
                continue;
            }
            let name = format!("{}, {kind}", format.dtype);
            // It also compares the bytes of each memory with the plan's.
            let mut case = Case::new(&name, &checkpoint, &placement, format.dtype, 8);
            found.push((kind, compare(&mut case, &mut worst)));
        }
        let bits = |wanted: &str| found.iter().find(|(kind, _)| *kind == wanted).map(|(_, logits)| logits);
        assert_eq!(bits("all on loopback"), bits("streamed"), "{}: where weights lie", format.dtype);

        // v in another format than q and k: matrices of several parts.
        let other = &FORMATS[(index + 4) % FORMATS.len()];
        write(&path, format, other);
        let checkpoint = Checkpoint::open(&path).expect("it opens");
        let model = checkpoint.model();
        for placement in [rig::on(model, rig::LOOPBACK), rig::split(model)] {
            let name = format!("{} with {}", format.dtype, other.dtype);
            let mut case = Case::mixed(&name, &checkpoint, &placement, format.dtype, 8);
            compare(&mut case, &mut worst);
        }
    }
    println!("largest difference: {worst} beside the CPU");
    assert!(worst > 0.0 && worst < 0.05, "{worst}");
    println!("they agree");
}

#[test]
fn a_plan_in_blocks_is_refused_for_files_without_blocks() {
    let checkpoint = rig::checkpoint("llama_gqa");
    let formats = Formats { weights: WeightFormats::all(DType::Q4K), ..rig::F32 };
    let extent = RunExtent { batch: 1, context: 8, chunk: 4, step_tokens: 1 };
    let model = checkpoint.model();
    let setup = setup(model, rig::on(model, rig::CPU), formats, extent);
    let error = Session::new(setup, &checkpoint).err().expect("it is bf16").to_string();
    assert!(
        error.contains("formats.weights is q4_k") && error.contains("has no weights in blocks"),
        "{error}"
    );
}

#[test]
fn slots_that_are_too_small_for_a_files_formats_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    // Eight and a half bits, where the plan counts four and a half.
    write(&path, &FORMATS[1], &FORMATS[1]);
    let checkpoint = Checkpoint::open(&path).expect("it opens");
    let formats = Formats { weights: WeightFormats::all(DType::Q4K), ..rig::F32 };
    let extent = RunExtent { batch: 1, context: 8, chunk: 4, step_tokens: 1 };
    let model = checkpoint.model();
    let attempt = |placement| Session::new(setup(model, placement, formats, extent), &checkpoint).map(|_| ());
    let error = attempt(rig::streamed(model)).expect_err("too small").to_string();
    assert!(error.contains("formats.weights is q8_0") && error.contains("through slots of"), "{error}");
    attempt(rig::on(model, rig::CPU)).expect("at home there is room");
}
