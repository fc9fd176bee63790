//! Checks of the timed work against its definition.

use super::gpu::{Gpu, PATTERN};
use super::kernels::VECTOR;
use super::random::{pattern, value};
use super::small_kernels::{COLUMNS, EPSILON};
use super::work::{GpuCheck, GpuWork, SmallKernel};
use crate::cuda::driver::device_memory::DeviceRange;
use crate::cuda::driver::product::sizes;
use crate::runtime::KernelError;
use hwprofiles::{DType, Direction};

/// Rows and columns of the product that is checked for each format. y has an odd number of rows.
const SHAPE: (usize, usize, usize) = (7, 192, 320);

impl Gpu {
    /// Runs work of the kind of `work` once and compares its result with the host's; `None` for
    /// work without a result, or whose kernels only [`crate::cuda::parity()`] checks. Of the small
    /// kernels the norm is checked.
    ///
    /// # Errors
    /// Those of [`Gpu::time`].
    pub fn check(&mut self, work: GpuWork) -> Result<Option<GpuCheck>, KernelError> {
        match work {
            GpuWork::Launch | GpuWork::Node | GpuWork::Replay | GpuWork::RoundTrip | GpuWork::LayerCalls => {
                Ok(None)
            }
            GpuWork::PackedProduct { .. } | GpuWork::GroupedProduct | GpuWork::Mixture => Ok(None),
            GpuWork::Read(_) => self.check_read().map(Some),
            GpuWork::Copy(_) => self.check_copy().map(Some),
            GpuWork::Product { dtype, .. } => self.check_product(dtype).map(Some),
            GpuWork::SmallKernel(_) => self.check_norm().map(Some),
            GpuWork::Attention(shape) => self.check_attention(shape).map(Some),
            GpuWork::Transfer { direction, memory, .. } => {
                self.set_host(memory)?;
                self.check_transfer(direction).map(Some)
            }
        }
    }

    /// Checks a read of an odd number of vectors, so that threads read different numbers of them.
    fn check_read(&mut self) -> Result<GpuCheck, KernelError> {
        let bytes = pattern(DType::Int8, PATTERN - VECTOR);
        let result = self.arena.result_at();
        self.arena.memory.upload(0, &bytes, &self.stream)?;
        self.arena.memory.upload(result, &[0; 4], &self.stream)?;
        let memory = &self.arena.memory;
        let (from, into) = (DeviceRange::new(memory, 0, bytes.len()), DeviceRange::new(memory, result, 4));
        // SAFETY: the arena lives as long as `self`, and this waits for the stream.
        unsafe { self.kernels.read(from, into, &self.stream) }?;
        self.stream.wait()?;
        let got = memory.download(result, 4, &self.stream)?;
        let wanted = bytes.chunks_exact(4).fold(0, |sum, word| sum ^ word_of(word));
        self.arena.forget();
        Ok(GpuCheck { got: f64::from(word_of(&got)), wanted: f64::from(wanted), tolerance: 0.0 })
    }

    fn check_copy(&mut self) -> Result<GpuCheck, KernelError> {
        let bytes = pattern(DType::Int8, 12_345);
        self.arena.memory.upload(0, &bytes, &self.stream)?;
        self.arena.memory.copy(PATTERN, 0, bytes.len(), &self.stream)?;
        self.stream.wait()?;
        let got = self.arena.memory.download(PATTERN, bytes.len(), &self.stream)?;
        self.arena.forget();
        Ok(differing(&got, &bytes))
    }

    /// Compares each value with the sum in double precision of the same operands.
    fn check_product(&mut self, dtype: DType) -> Result<GpuCheck, KernelError> {
        let (m, n, k) = SHAPE;
        let placed = self.place(dtype, m as u64, n as u64, k as u64)?;
        placed.enqueue(self, 0)?;
        self.stream.wait()?;
        let (operand, result) = sizes(dtype).unwrap_or((1, 1));
        let memory = &self.arena.memory;
        let read = |at, count: usize| -> Result<Vec<f64>, KernelError> {
            let bytes = memory.download(at, count * operand, &self.stream)?;
            Ok(bytes.chunks(operand).map(|bytes| value(dtype, bytes)).collect())
        };
        let (w, x) = (read(0, n * k)?, read(self.arena.x_at(), m * k)?);
        let y = memory.download(self.arena.y_at(), m * n * result, &self.stream)?;
        let y = y.chunks(result).map(|bytes| match dtype {
            DType::Int8 => f64::from(word_of(bytes) as i32),
            DType::Fp8 => value(DType::Bf16, bytes),
            _ => value(dtype, bytes),
        });
        let checks = y.enumerate().map(|(i, got)| {
            let terms = x[i / n * k..][..k].iter().zip(&w[i % n * k..][..k]).map(|(x, w)| x * w);
            let (wanted, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            GpuCheck { got, wanted, tolerance: tolerance(dtype, wanted, size) }
        });
        Ok(first_wrong(checks))
    }

    /// Compares each value with the norm in double precision of the same operands.
    fn check_norm(&mut self) -> Result<GpuCheck, KernelError> {
        let mut calls = self.take_model_calls(GpuWork::SmallKernel(SmallKernel::Norm))?;
        calls.run()?;
        let [x, y] = [&calls.placed.buffers[0], &calls.placed.buffers[1]];
        let (x, y) = (x.read_back::<f32>(0..COLUMNS)?, y.read_back::<u16>(0..COLUMNS)?);
        let gamma = self.arena.memory.download(0, 4 * COLUMNS, &self.stream)?;
        self.keep_model_calls(calls);
        let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        let scale = (squares / COLUMNS as f64 + f64::from(EPSILON)).sqrt().recip();
        Ok(first_wrong(x.iter().zip(&y).zip(gamma.chunks(4)).map(|((x, y), gamma)| {
            let wanted = f64::from(*x) * scale * f64::from(f32::from_bits(word_of(gamma)));
            let got = value(DType::Bf16, &y.to_le_bytes());
            GpuCheck { got, wanted, tolerance: wanted.abs() / 128.0 + 1e-5 }
        })))
    }

    fn check_transfer(&mut self, direction: Direction) -> Result<GpuCheck, KernelError> {
        let bytes = pattern(DType::Int8, 54_321);
        let Some((from, to)) = &mut self.host else {
            return Ok(GpuCheck { got: 0.0, wanted: 0.0, tolerance: 0.0 });
        };
        let memory = &self.arena.memory;
        let len = bytes.len().min(from.len());
        let check = if direction == Direction::ToDevice {
            // SAFETY: this waits for the stream before the pages or the arena can change.
            unsafe { from.send(0, DeviceRange::new(memory, 0, len), &self.stream) }?;
            self.stream.wait()?;
            differing(&memory.download(0, len, &self.stream)?, &from.bytes()[..len])
        } else {
            memory.upload(0, &bytes, &self.stream)?;
            // SAFETY: this waits for the stream before the pages or the arena can change.
            unsafe { to.receive(0, DeviceRange::new(memory, 0, len), &self.stream) }?;
            self.stream.wait()?;
            differing(&to.bytes()[..len], &bytes[..len])
        };
        self.arena.forget();
        Ok(check)
    }
}

/// The largest allowed error: half a unit in the last place of the result, and the error of the
/// sum. Sums in 32 bits lose little, but Hopper keeps only 13 bits in sums of 8-bit floats.
fn tolerance(dtype: DType, wanted: f64, size: f64) -> f64 {
    match dtype {
        DType::Int8 => 0.0,
        DType::Fp8 => wanted.abs() / 128.0 + size / 1024.0,
        DType::F16 => wanted.abs() / 1024.0 + size / 65_536.0,
        _ => wanted.abs() / 128.0 + size / 65_536.0,
    }
}

/// The first wrong value, otherwise any value. NaN is wrong. There is at least one.
pub(super) fn first_wrong(checks: impl Iterator<Item = GpuCheck>) -> GpuCheck {
    let right = |check: &GpuCheck| (check.got - check.wanted).abs() <= check.tolerance;
    let checks: Vec<_> = checks.collect();
    *checks.iter().find(|check| !right(check)).unwrap_or(&checks[0])
}

/// The number of bytes that differ, which must be 0.
fn differing(got: &[u8], wanted: &[u8]) -> GpuCheck {
    let count = got.iter().zip(wanted).filter(|(a, b)| a != b).count() + got.len().abs_diff(wanted.len());
    GpuCheck { got: count as f64, wanted: 0.0, tolerance: 0.0 }
}

fn word_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
