//! The kernels of the measurement, compiled by the driver.

use crate::cuda::driver::context::GpuStream;
use crate::cuda::driver::device_memory::DeviceRange;
use crate::cuda::driver::result::gpu_result;
use crate::runtime::KernelError;
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};

/// Their PTX. The driver's compiler takes only ASCII, also in comments.
const TEXT: &str = include_str!("../kernels.ptx");
/// Threads of a block that reads. `of_block` is summed by warps of 32.
const THREADS: u32 = 256;
/// Blocks per multiprocessor: 2048 threads, where it holds that many.
const BLOCKS: u32 = 8;
/// Bytes of one load.
pub(super) const VECTOR: usize = 16;

/// The loaded kernels.
#[derive(Debug)]
pub(super) struct MeasureKernels {
    module: sys::CUmodule,
    empty: sys::CUfunction,
    read: sys::CUfunction,
    multiprocessors: u32,
}

impl MeasureKernels {
    /// Compiles the kernels for the GPU of the current context, which has `multiprocessors`
    /// multiprocessors.
    pub fn load(multiprocessors: u32) -> Result<Self, KernelError> {
        let text = gpu_result("our kernels", CString::new(TEXT))?;
        // SAFETY: the text ends with a zero byte, which marks the end of PTX for the driver.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) };
        let module = gpu_result("our kernels", module)?;
        let find = |name: &str| {
            let name = gpu_result("a kernel's name", CString::new(name))?;
            // SAFETY: the module is live.
            gpu_result("a kernel of ours", unsafe { result::module::get_function(module, name) })
        };
        match (find("empty"), find("read_all")) {
            (Ok(empty), Ok(read)) => Ok(Self { module, empty, read, multiprocessors }),
            (Err(error), _) | (_, Err(error)) => {
                // SAFETY: it was loaded above, and no kernel of it is in use.
                let _ = unsafe { result::module::unload(module) };
                Err(error)
            }
        }
    }

    /// Enqueues the kernel that does nothing.
    pub fn empty(&self, stream: &GpuStream) -> Result<(), KernelError> {
        // SAFETY: the kernel is live and takes no parameters.
        let launched =
            unsafe { result::launch_kernel(self.empty, (1, 1, 1), (32, 1, 1), 0, stream.raw(), &mut []) };
        gpu_result("an empty kernel", launched)
    }

    /// Enqueues a read of all of `from`, which is whole [`VECTOR`]s. The exclusive or of its 32-bit
    /// words is combined into the 32 bits of `into`.
    ///
    /// # Safety
    /// Until the stream's work is done, the memory of both ranges is not freed, and nobody else
    /// writes it.
    ///
    /// # Panics
    /// Where `from` is not whole vectors or `into` is not four bytes.
    pub unsafe fn read(
        &self,
        from: DeviceRange<'_>,
        into: DeviceRange<'_>,
        stream: &GpuStream,
    ) -> Result<(), KernelError> {
        let (mut start, mut into_address) = (from.address(), into.address());
        assert!(start.is_multiple_of(VECTOR as u64) && from.len().is_multiple_of(VECTOR));
        assert!(into_address.is_multiple_of(4) && into.len() == 4, "room for 32 bits");
        let mut count = (from.len() / VECTOR) as u64;
        let parameter = |value: &mut u64| std::ptr::from_mut(value).cast::<c_void>();
        let mut parameters = [parameter(&mut start), parameter(&mut count), parameter(&mut into_address)];
        let (blocks, threads) = ((self.multiprocessors * BLOCKS, 1, 1), (THREADS, 1, 1));
        // SAFETY: the three parameters are those that the kernel declares, and are copied before
        // the call returns. The kernel reads `count` vectors of `from` and changes the 32 bits of
        // `into`.
        let launched =
            unsafe { result::launch_kernel(self.read, blocks, threads, 0, stream.raw(), &mut parameters) };
        gpu_result("a read of its memory", launched)
    }
}

impl Drop for MeasureKernels {
    fn drop(&mut self) {
        // SAFETY: `load` loaded it, and callers have waited for all launches.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

#[cfg(test)]
mod tests {
    use super::TEXT;

    #[test]
    fn the_text_is_ascii_for_volta_and_newer_and_has_the_kernels_that_we_look_for() {
        // ptxas refuses any other character, also in a comment.
        assert!(TEXT.is_ascii() && !TEXT.contains('\0'));
        assert!(TEXT.contains("\n.target sm_70\n") && TEXT.contains("\n.version 6.4\n"));
        for entry in [".visible .entry empty()", ".visible .entry read_all(.param .u64 param_from, "] {
            assert!(TEXT.contains(entry), "{entry}");
        }
    }
}
