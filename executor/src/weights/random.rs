//! A model folder with random weights: the shapes, formats and files of a real model, without a
//! download.

use crate::error::ExecutorError;
use crate::weights::fused::Tensor;
use crate::weights::tensors;
use crate::weights::tokenizer::byte_level_json;
use half::bf16;
use hwprofiles::DType;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use scenarios::Model;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Values that one random stream fills.
const PIECE: u64 = 1 << 20;
/// Entries of the table of normal values from which weights are drawn; a power of two.
const NORMALS: usize = 1 << 12;

/// Writes `config.json`, `model.safetensors` in bf16 and a byte-level `tokenizer.json` into the new
/// folder `folder`.
///
/// Matrices are normal with variance 1 / columns, so that activations keep their size through any
/// depth. Norm weights are 1, biases are normal with deviation 0.02. The same model and seed give
/// the same bytes on every machine and with any number of threads, because every million values
/// have their own stream.
///
/// The folder appears complete or not at all.
///
/// # Errors
/// It exists already or cannot be written, or the model cannot be run (an indexer,
/// shared keys and values).
pub fn make_random(model: &Model, folder: &Path, seed: u64) -> Result<(), ExecutorError> {
    tensors::check_runnable(model)?;
    let failed = |path: &Path, source| ExecutorError::File { path: path.to_owned(), source };
    if folder.exists() {
        let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(failed(folder, source));
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|source| failed(parent, source))?;
    let partial = parent.join(format!(".{name}.{}.part", std::process::id()));
    let written = write_folder(model, &partial, seed)
        .and_then(|()| fs::rename(&partial, folder).map_err(|source| failed(folder, source)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&partial);
    }
    written
}

fn write_folder(model: &Model, folder: &Path, seed: u64) -> Result<(), ExecutorError> {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| ExecutorError::File { path, source })
    };
    fs::create_dir_all(folder).map_err(|source| ExecutorError::File { path: folder.to_owned(), source })?;
    let model = Model { dtype: DType::Bf16, ..model.clone() };
    let config = model
        .to_config_json()
        .map_err(|error| ExecutorError::refused("model", format!("'{}'", model.name), error.to_string()))?;
    write("config.json", config)?;
    write("tokenizer.json", byte_level_json(model.vocab))?;
    let path = folder.join("model.safetensors");
    write_weights(&model, &path, seed).map_err(|source| ExecutorError::File { path, source })
}

fn write_weights(model: &Model, path: &Path, seed: u64) -> std::io::Result<()> {
    let tensors = [tensors::all_tensors(model), tensors::module_tensors(model)].concat();
    let (header, starts) = header(&tensors);
    let file = File::create(path)?;
    file.write_all_at(&header, 0)?;
    let normals = normals(seed);
    let pieces: Vec<(usize, u64)> = tensors
        .iter()
        .enumerate()
        .flat_map(|(index, tensor)| (0..count(tensor).div_ceil(PIECE)).map(move |piece| (index, piece)))
        .collect();
    pieces.par_iter().try_for_each(|&(index, piece)| {
        let values = PIECE.min(count(&tensors[index]) - piece * PIECE);
        let stream = u128::from(seed) << 64 | (index as u128) << 32 | u128::from(piece);
        let bytes = draw(&tensors[index], values, &normals, Pcg64Mcg::new(scramble(stream)));
        file.write_all_at(&bytes, starts[index] + piece * PIECE * 2)
    })?;
    file.sync_all()
}

fn count(tensor: &Tensor) -> u64 {
    tensor.shape.iter().product()
}

/// The file's header, and the position in the file where each tensor starts.
fn header(tensors: &[Tensor]) -> (Vec<u8>, Vec<u64>) {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let (mut at, mut starts) = (0, Vec::new());
    for tensor in tensors {
        let end = at + 2 * count(tensor);
        let entry = json!({"dtype": "BF16", "shape": tensor.shape, "data_offsets": [at, end]});
        entries.insert(tensor.name.clone(), entry);
        starts.push(at);
        at = end;
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    // Padded with spaces to a multiple of 8, since the format aligns its data.
    text.resize(text.len().next_multiple_of(8), b' ');
    let data = 8 + text.len() as u64;
    let bytes = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
    (bytes, starts.into_iter().map(|start| data + start).collect())
}

/// Normal values of deviation 1, by Box and Muller's method.
fn normals(seed: u64) -> Vec<f32> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut uniform = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |_| (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    (0..NORMALS).map(normal).map(|value| value as f32).collect()
}

/// SplitMix64's finaliser on both halves, so that neighbouring streams do not begin alike.
fn scramble(stream: u128) -> u128 {
    let mix = |mut z: u64| {
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let (high, low) = ((stream >> 64) as u64, stream as u64);
    u128::from(mix(high ^ mix(low))) << 64 | u128::from(mix(low.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// `values` little-endian bf16 values of a tensor.
fn draw(tensor: &Tensor, values: u64, normals: &[f32], mut random: Pcg64Mcg) -> Vec<u8> {
    let (mean, deviation) = match tensor.shape[..] {
        // A convolution has its taps last.
        [_, columns] | [_, _, columns] => (0.0, (columns as f32).sqrt().recip()),
        _ if tensor.name.ends_with("bias") => (0.0, 0.02),
        // The file stores a scale of 1, or its difference from 1.
        _ => (if tensor.plus_one { 0.0 } else { 1.0 }, 0.0),
    };
    let table: Vec<[u8; 2]> =
        normals.iter().map(|normal| bf16::from_f32(mean + deviation * normal).to_le_bytes()).collect();
    let mut bytes = vec![0; 2 * values as usize];
    // A random number of 64 bits gives five indices of 12 bits.
    for out in bytes.chunks_mut(10) {
        let mut bits = random.next_u64();
        for out in out.chunks_exact_mut(2) {
            out.copy_from_slice(&table[bits as usize % NORMALS]);
            bits >>= 12;
        }
    }
    bytes
}
