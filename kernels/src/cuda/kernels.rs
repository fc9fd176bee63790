//! Our own kernels, compiled by the driver.

use super::context::Stream;
use super::done;
use crate::Error;
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};

/// Their text. The driver's compiler takes ASCII only, comments included.
const TEXT: &str = include_str!("kernels.ptx");
/// Threads of a block that reads; `of_block` is summed up by warps of 32.
const THREADS: u32 = 256;
/// Blocks on a multiprocessor: 2048 threads, where it holds as many.
const BLOCKS: u32 = 8;
/// Bytes that one load reads.
pub(super) const VECTOR: usize = 16;

/// The loaded kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    module: sys::CUmodule,
    empty: sys::CUfunction,
    read: sys::CUfunction,
    multiprocessors: u32,
}

impl Kernels {
    /// Compiles them for the current context's GPU, which has so many multiprocessors.
    pub fn load(multiprocessors: u32) -> Result<Self, Error> {
        let text = done("our kernels", CString::new(TEXT))?;
        // SAFETY: the text ends with a zero byte, which is how the driver tells PTX's end.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) };
        let module = done("our kernels", module)?;
        let find = |name: &str| {
            let name = done("a kernel's name", CString::new(name))?;
            // SAFETY: the module is live.
            done("a kernel of ours", unsafe { result::module::get_function(module, name) })
        };
        match (find("empty"), find("read_all")) {
            (Ok(empty), Ok(read)) => Ok(Self { module, empty, read, multiprocessors }),
            (Err(error), _) | (_, Err(error)) => {
                // SAFETY: loaded above, and nothing of it was found.
                let _ = unsafe { result::module::unload(module) };
                Err(error)
            }
        }
    }

    /// Enqueues the kernel that does nothing.
    pub fn empty(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the kernel is live and takes no parameters.
        let launched =
            unsafe { result::launch_kernel(self.empty, (1, 1, 1), (32, 1, 1), 0, stream.raw(), &mut []) };
        done("an empty kernel", launched)
    }

    /// Enqueues a read of `len` bytes at `from`, whole [`VECTOR`]s of the caller's; the 32 bits at `into`, also the
    /// caller's, take the exclusive or of them all.
    pub fn read(
        &self,
        mut from: sys::CUdeviceptr,
        len: usize,
        mut into: sys::CUdeviceptr,
        stream: &Stream,
    ) -> Result<(), Error> {
        assert!(from.is_multiple_of(VECTOR as u64) && len.is_multiple_of(VECTOR));
        let mut count = (len / VECTOR) as u64;
        let parameter = |value: &mut u64| std::ptr::from_mut(value).cast::<c_void>();
        let mut parameters = [parameter(&mut from), parameter(&mut count), parameter(&mut into)];
        let (blocks, threads) = ((self.multiprocessors * BLOCKS, 1, 1), (THREADS, 1, 1));
        // SAFETY: the three parameters are those that the kernel declares, copied before the call returns; it reads
        // `count` vectors from `from` and changes 32 bits at `into`.
        let launched =
            unsafe { result::launch_kernel(self.read, blocks, threads, 0, stream.raw(), &mut parameters) };
        done("a read of its memory", launched)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`; whoever launched one has waited for it.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

#[cfg(test)]
mod tests {
    use super::TEXT;

    #[test]
    fn the_text_is_ascii_for_volta_and_newer_and_has_the_kernels_that_we_look_for() {
        // ptxas refuses any other character, even in a comment.
        assert!(TEXT.is_ascii() && !TEXT.contains('\0'));
        assert!(TEXT.contains("\n.target sm_70\n") && TEXT.contains("\n.version 6.4\n"));
        for entry in [".visible .entry empty()", ".visible .entry read_all(.param .u64 param_from, "] {
            assert!(TEXT.contains(entry), "{entry}");
        }
    }
}
