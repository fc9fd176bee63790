//! A GPU and a CPU side by side, and the differences of their results.

use crate::cpu::{Weights, moderate_scales};
use crate::cuda::calls::{GpuSlice, KernelCall};
use crate::cuda::model::{Accelerator, Queue};
use crate::runtime::{Buffer, KernelError, MemoryArena, Path, Pool, affinity};
use half::bf16;
use hwprofiles::DType;
use hwprofiles::units::Bytes;
use std::sync::Arc;

/// The difference between a GPU's kernel and the CPU's.
#[derive(Debug, Clone, PartialEq)]
pub struct Parity {
    /// The kernel and its shape.
    pub what: String,
    /// The largest difference, as a share of what rounding allows at that value: at most 1 is
    /// right. NaN counts as infinitely far.
    pub share: f32,
}

impl Parity {
    /// Whether the difference is allowed.
    pub fn holds(&self) -> bool {
        self.share <= 1.0
    }
}

/// A GPU and a CPU side by side.
pub(super) struct ParityBench {
    pub(super) memory: MemoryArena,
    pub(super) queue: Queue,
    pub(super) pool: Pool,
    found: Vec<Parity>,
    seed: u64,
}

impl ParityBench {
    pub(super) fn new(gpu: &Arc<Accelerator>) -> Result<Self, KernelError> {
        Ok(Self {
            memory: MemoryArena::on_gpu("parity", Bytes::new(1 << 30), Arc::clone(gpu)),
            queue: Queue::new(gpu)?,
            pool: Pool::new(&affinity::available_cores()[..1])?.with_path(Path::Reference),
            found: Vec::new(),
            seed: 0x9e37_79b9_7f4a_7c15,
        })
    }

    pub(super) fn into_found(self) -> Vec<Parity> {
        self.found
    }

    /// Random values from −1 to 1 that bf16 represents exactly.
    pub(super) fn noise(&mut self, len: usize) -> Vec<f32> {
        let next = || {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            bf16::from_f32((self.seed >> 40) as f32 / (1 << 23) as f32 - 1.0).to_f32()
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    /// A matrix of random values, packed on the host. Blocks that we do not quantise are random
    /// themselves.
    pub(super) fn weights(
        &mut self,
        dtype: DType,
        rows: usize,
        columns: usize,
    ) -> Result<Weights, KernelError> {
        let host = MemoryArena::new("host", Bytes::new(1 << 30));
        if !Weights::has_blocks(dtype) {
            return Weights::from_f32(&host, dtype, rows, columns, &self.noise(rows * columns));
        }
        Weights::from_scaled_blocks(&host, dtype, rows, columns, |row, out| {
            let random = self.noise(out.len());
            out.iter_mut().zip(random).for_each(|(out, value)| *out = (value * 1e5) as i32 as u8);
            moderate_scales(dtype, out);
            0.5 + (row % 5) as f32 / 9.0
        })
    }

    pub(super) fn wide(&self, values: &[f32]) -> Result<Buffer, KernelError> {
        self.there(values)
    }

    pub(super) fn narrow(&self, values: &[f32]) -> Result<Buffer, KernelError> {
        let bits: Vec<u16> = values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect();
        self.there(&bits)
    }

    pub(super) fn numbers(&self, values: &[usize]) -> Result<Buffer, KernelError> {
        let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
        self.there(&values)
    }

    pub(super) fn there<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Buffer, KernelError> {
        let mut buffer = self.memory.allocate(size_of_val(values))?;
        buffer.upload(0, bytemuck::cast_slice(values))?;
        Ok(buffer)
    }

    pub(super) fn room<T>(&self, len: usize) -> Result<(Buffer, GpuSlice<T>), KernelError> {
        let buffer = self.memory.allocate(len * size_of::<T>())?;
        let values = buffer.values();
        Ok((buffer, values))
    }

    pub(super) fn run(&mut self, call: &KernelCall) -> Result<(), KernelError> {
        self.queue.run(call)
    }

    /// Waits for the GPU and compares its bf16 values with `wanted`.
    pub(super) fn compare(
        &mut self,
        what: String,
        got: &Buffer,
        wanted: &[f32],
        slack: f32,
    ) -> Result<(), KernelError> {
        self.queue.wait()?;
        let bits = got.read_back::<u16>(0..wanted.len())?;
        let got: Vec<f32> = bits.into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect();
        self.note(what, &got, wanted, |wanted| wanted.abs() / 256.0 + slack);
        Ok(())
    }

    /// As [`ParityBench::compare`], for f32.
    pub(super) fn compare_wide(
        &mut self,
        what: String,
        got: &Buffer,
        wanted: &[f32],
        slack: f32,
    ) -> Result<(), KernelError> {
        self.queue.wait()?;
        let got = got.read_back::<f32>(0..wanted.len())?;
        self.note(what, &got, wanted, |wanted| wanted.abs() / 65_536.0 + slack);
        Ok(())
    }

    fn note(&mut self, what: String, got: &[f32], wanted: &[f32], may: impl Fn(f32) -> f32) {
        let share = |(got, wanted): (&f32, &f32)| {
            let share = (got - wanted).abs() / may(*wanted);
            // Equal values have no difference, also where the allowed one is 0. NaN is never right.
            if got == wanted {
                0.0
            } else if share.is_nan() {
                f32::INFINITY
            } else {
                share
            }
        };
        let share = got.iter().zip(wanted).map(share).fold(0.0, f32::max);
        self.found.push(Parity { what, share });
    }
}
