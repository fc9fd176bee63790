//! Calls of our own kernels: what a forward pass asks of a GPU besides products.
//!
//! A [`Call`] is data: which kernel, over which blocks, with which arguments. It is made from addresses and shapes, which
//! are checked then, and knows nothing of a GPU. What runs it is another matter: [`super::Queue`] on a GPU, and in
//! tests the host, over the same text.
//!
//! Values that go from kernel to kernel are bf16, as products want them; what layers add to is f32. Weights are packed
//! as for the CPU ([`crate::Weights`]), and a KV cache with one page per sequence lies as the CPU's does, so that bytes go
//! from one to the other unchanged.

mod attention;
mod experts;
mod hop;
mod product;
mod rows;
mod sampling;

pub use attention::{Decoding, MOST_VALUES, Paged, append, decode, decode_chunk, decode_scratch, prefill};
pub use experts::{Matrices, Routing};
pub use hop::{copy_rows, narrow_rows, widen_rows};
pub use product::{Output, add_places, gather, gemv, unpack};
pub use rows::{
    Activation, Norm, Rotation, activation, add, add_bias, add_rms_norm, gelu_mul, layer_norm, rms_norm,
    rms_norm_heads, rope, silu_mul, soft_cap,
};
pub use sampling::sample;

use super::Program;
use bytemuck::Pod;
use std::marker::PhantomData;

/// So many values of `T` at an address that the kernels' memory has.
#[derive(Debug)]
pub struct Values<T> {
    address: u64,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Values<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Values<T> {}

impl<T> Values<T> {
    /// `len` values at `address`.
    ///
    /// # Safety
    /// They are there, and stay there while a call that they are given to runs. [`crate::Buffer::values`] gives such.
    ///
    /// # Panics
    /// Where the address is not a multiple of 16, which some kernels load at once.
    pub unsafe fn new(address: u64, len: usize) -> Self {
        assert!(address.is_multiple_of(16), "{address:#x} is not a multiple of 16");
        Self { address, len, of: PhantomData }
    }

    /// Those from `from` on. They need not begin at a multiple of 16: it is for rows of heads.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn from(self, from: usize) -> Self {
        assert!(from <= self.len, "{from} of {}", self.len);
        Self { address: self.address + (from * size_of::<T>()) as u64, len: self.len - from, ..self }
    }

    /// The first `len`.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn first(self, len: usize) -> Self {
        assert!(len <= self.len, "{len} of {}", self.len);
        Self { len, ..self }
    }

    /// The same bytes as values of another type, as many as there are whole.
    pub fn cast<U>(self) -> Values<U> {
        Values { address: self.address, len: self.len * size_of::<T>() / size_of::<U>(), of: PhantomData }
    }

    /// Where the first is.
    pub fn address(self) -> u64 {
        self.address
    }

    /// How many.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address, where it is a multiple of `of`: of what is loaded at once.
    fn aligned(self, of: u64, what: &str) -> u64 {
        assert!(self.address.is_multiple_of(of), "{what}: {:#x} is not a multiple of {of}", self.address);
        self.address
    }

    /// The address, where at least `wanted` values are there.
    fn holding(self, wanted: usize, what: &str) -> u64 {
        assert!(self.len >= wanted, "{what}: {wanted} values are needed, {} are there", self.len);
        self.address
    }
}

/// One launch of a kernel.
#[derive(Debug, Clone)]
pub struct Call {
    program: Program,
    kernel: &'static str,
    grid: [u32; 3],
    threads: u32,
    arguments: Vec<u64>,
    bytes: usize,
}

impl Call {
    fn new<A: Pod>(program: Program, kernel: &'static str, grid: [usize; 3], threads: u32, a: A) -> Self {
        // The driver's limits of the second and third are 65,535.
        assert!(grid[0] < 1 << 31 && grid[1] < 1 << 16 && grid[2] < 1 << 16, "{kernel}: {grid:?} blocks");
        let bytes = bytemuck::bytes_of(&a);
        let mut arguments = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut arguments)[..bytes.len()].copy_from_slice(bytes);
        Self {
            program,
            kernel,
            grid: grid.map(|blocks| blocks as u32),
            threads,
            arguments,
            bytes: bytes.len(),
        }
    }

    /// The text that has the kernel.
    pub fn program(&self) -> Program {
        self.program
    }

    /// Its name there.
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// Blocks in three directions; where one is 0 there is nothing to do.
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

/// A number of things, as kernels take it.
///
/// # Panics
/// Where it is 2³¹ or more.
fn count(of: usize) -> i32 {
    i32::try_from(of).unwrap_or_else(|_| panic!("{of} is more than a kernel counts"))
}

/// Values up to the end of the last of `rows` rows of `columns`, `stride` apart.
fn extent(rows: usize, stride: usize, columns: usize) -> usize {
    assert!(stride >= columns || rows <= 1, "rows of {columns} values are {stride} apart");
    rows.checked_sub(1).map_or(0, |before| before * stride + columns)
}
