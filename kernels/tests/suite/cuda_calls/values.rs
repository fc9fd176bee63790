//! Random values, and comparisons of results.

pub use crate::noise::noise;
use half::bf16;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use kernels::{MemoryArena, Path, Pool, Weights, affinity, moderate_scales};

/// Formats of matrices that all kernels read.
pub use kernels::cuda::calls::GPU_MATRICES as FORMATS;

/// Whether matrices of `dtype` may have this shape.
pub fn has_shape(dtype: DType, (rows, columns): (usize, usize)) -> bool {
    match dtype {
        DType::Fp8Block => rows.is_multiple_of(16),
        _ => !Weights::has_blocks(dtype) || Weights::keeps_blocks(dtype, columns),
    }
}

/// A matrix of random values. Blocks that we do not quantise are random themselves.
pub fn weights(dtype: DType, rows: usize, columns: usize, seed: u64) -> Weights {
    let memory = MemoryArena::new("host", Bytes::new(1 << 30));
    if !Weights::has_blocks(dtype) {
        let values = noise(rows * columns, seed);
        return Weights::from_f32(&memory, dtype, rows, columns, &values).expect("memory");
    }
    Weights::from_scaled_blocks(&memory, dtype, rows, columns, |row, out| {
        let random = noise(out.len(), seed * 1000 + row as u64);
        out.iter_mut().zip(random).for_each(|(out, value)| *out = (value * 1e5) as i32 as u8);
        moderate_scales(dtype, out);
        0.1 + (row % 5) as f32 / 9.0
    })
    .expect("memory")
}

pub fn narrow(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect()
}

pub fn widen(values: &[u16]) -> Vec<f32> {
    values.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect()
}

/// Random values that bf16 represents exactly.
pub fn short(len: usize, seed: u64) -> Vec<f32> {
    widen(&narrow(&noise(len, seed)))
}

pub fn pool() -> Pool {
    Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(Path::Reference)
}

/// Expects values that differ by at most `slack`.
pub fn assert_close(got: &[f32], wanted: &[f32], slack: f32, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= slack, "{what}: {got} at {i}, not {wanted}");
    }
}

/// Expects bf16 values that differ by rounding and at most `slack` before it.
pub fn assert_near(got: &[u16], wanted: &[f32], slack: f32, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in widen(got).iter().zip(wanted).enumerate() {
        let error = (got - wanted).abs();
        assert!(error <= wanted.abs() / 256.0 + slack, "{what}: {got} at {i}, not {wanted}");
    }
}
