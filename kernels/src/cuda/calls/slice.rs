//! Values in memory that a GPU's kernels reach.

use std::marker::PhantomData;

/// Values of type `T` in memory that a GPU's kernels reach: an address and a length.
#[derive(Debug)]
pub struct GpuSlice<T> {
    pub(super) address: u64,
    len: usize,
    marker: PhantomData<fn() -> T>,
}

impl<T> Clone for GpuSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for GpuSlice<T> {}

impl<T> GpuSlice<T> {
    /// `len` values at `address`.
    ///
    /// # Safety
    /// The values are there, and stay there while a call that takes them runs.
    /// [`crate::Buffer::values`] is the safe way to make a slice.
    ///
    /// # Panics
    /// Where the address is not a multiple of 16, because some kernels load 16 bytes at once.
    pub unsafe fn new(address: u64, len: usize) -> Self {
        assert!(address.is_multiple_of(16), "{address:#x} is not a multiple of 16");
        Self { address, len, marker: PhantomData }
    }

    /// The values from index `from` on. They need not begin at a multiple of 16 bytes.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn from(self, from: usize) -> Self {
        assert!(from <= self.len, "{from} of {}", self.len);
        Self { address: self.address + (from * size_of::<T>()) as u64, len: self.len - from, ..self }
    }

    /// The first `len` values.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn first(self, len: usize) -> Self {
        assert!(len <= self.len, "{len} of {}", self.len);
        Self { len, ..self }
    }

    /// The same bytes as values of another type; an incomplete value at the end is left out.
    pub fn cast<U>(self) -> GpuSlice<U> {
        GpuSlice {
            address: self.address,
            len: self.len * size_of::<T>() / size_of::<U>(),
            marker: PhantomData,
        }
    }

    /// The address of the first value.
    pub fn address(self) -> u64 {
        self.address
    }

    /// The number of values.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address. Panics unless it is a multiple of `align`, the bytes that are loaded at once.
    pub(super) fn aligned(self, align: u64, what: &str) -> u64 {
        assert!(
            self.address.is_multiple_of(align),
            "{what}: {:#x} is not a multiple of {align}",
            self.address
        );
        self.address
    }

    /// The address. Panics unless there are at least `wanted` values.
    pub(super) fn holding(self, wanted: usize, what: &str) -> u64 {
        assert!(self.len >= wanted, "{what}: {wanted} values are needed, {} are there", self.len);
        self.address
    }
}
