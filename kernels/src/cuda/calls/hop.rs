//! Calls that move activations between the host's f32 and the formats of a GPU.

use super::call::{KernelCall, count, extent};
use super::slice::GpuSlice;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 256;
/// The number of blocks that keeps a bus busy. More would keep multiprocessors from other work.
const MOST_BLOCKS: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct HopArguments {
    from: u64,
    to: u64,
    count: u64,
    columns: i32,
    from_stride: i32,
    to_stride: i32,
    unused: i32,
}

fn hop<F, T>(
    kernel: &'static str,
    (to, to_stride): (GpuSlice<T>, usize),
    (from, from_stride): (GpuSlice<F>, usize),
    [rows, columns]: [usize; 2],
) -> KernelCall {
    let arguments = HopArguments {
        from: from.holding(extent(rows, from_stride, columns), "from"),
        to: to.holding(extent(rows, to_stride, columns), "to"),
        count: (rows * columns) as u64,
        columns: count(columns),
        from_stride: count(from_stride),
        to_stride: count(to_stride),
        unused: 0,
    };
    let blocks = (rows * columns).div_ceil(THREADS as usize).min(MOST_BLOCKS);
    KernelCall::new(GpuProgram::Hop, kernel, [blocks, 1, 1], THREADS, arguments)
}

/// Converts rows of bf16 to f32. Each side has its own distance between rows; `size` is rows and
/// columns.
pub fn widen_rows(to: (GpuSlice<f32>, usize), from: (GpuSlice<u16>, usize), size: [usize; 2]) -> KernelCall {
    hop("widen_rows", to, from, size)
}

/// Rounds rows of f32 to bf16.
pub fn narrow_rows(to: (GpuSlice<u16>, usize), from: (GpuSlice<f32>, usize), size: [usize; 2]) -> KernelCall {
    hop("narrow_rows", to, from, size)
}

/// Copies rows of f32.
pub fn copy_rows(to: (GpuSlice<f32>, usize), from: (GpuSlice<f32>, usize), size: [usize; 2]) -> KernelCall {
    hop("copy_rows", to, from, size)
}
