//! One launch of a kernel as data.

use crate::cuda::program::GpuProgram;
use bytemuck::Pod;

/// One launch of a kernel.
#[derive(Debug, Clone)]
pub struct KernelCall {
    program: GpuProgram,
    kernel: &'static str,
    grid: [u32; 3],
    threads: u32,
    arguments: Vec<u64>,
    bytes: usize,
}

impl KernelCall {
    pub(super) fn new<A: Pod>(
        program: GpuProgram,
        kernel: &'static str,
        grid: [usize; 3],
        threads: u32,
        arguments: A,
    ) -> Self {
        // The driver's limit for the second and the third direction is 65,535.
        assert!(grid[0] < 1 << 31 && grid[1] < 1 << 16 && grid[2] < 1 << 16, "{kernel}: {grid:?} blocks");
        let bytes = bytemuck::bytes_of(&arguments);
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self {
            program,
            kernel,
            grid: grid.map(|blocks| blocks as u32),
            threads,
            arguments: words,
            bytes: bytes.len(),
        }
    }

    /// The program that has the kernel.
    pub fn program(&self) -> GpuProgram {
        self.program
    }

    /// The name of the kernel.
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// The number of blocks in three directions. Where one is 0, there is nothing to do.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The structure that the kernel takes.
    pub fn arguments(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.arguments)[..self.bytes]
    }
}

/// A count in the type that kernels take.
///
/// # Panics
/// Where it is 2³¹ or more.
pub(super) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or_else(|_| panic!("{number} is more than a kernel counts"))
}

/// The number of values up to the end of the last of `rows` rows of `columns` values that lie
/// `stride` apart.
///
/// # Panics
/// Where rows overlap, or a `usize` cannot hold the number.
pub(super) fn extent(rows: usize, stride: usize, columns: usize) -> usize {
    assert!(stride >= columns || rows <= 1, "rows of {columns} values are {stride} apart");
    let Some(before) = rows.checked_sub(1) else { return 0 };
    let end = before.checked_mul(stride).and_then(|start| start.checked_add(columns));
    end.unwrap_or_else(|| panic!("{rows} rows that are {stride} apart"))
}
