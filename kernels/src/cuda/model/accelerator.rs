//! A GPU that runs models: what all its queues share.

use crate::cuda::driver::context::{Context, GpuStream, initialise};
use crate::cuda::driver::nvrtc::{self, compile};
use crate::cuda::driver::product::Blas;
use crate::cuda::driver::result::gpu_result;
use crate::cuda::driver::unavailable::GpuUnavailable;
use crate::cuda::program::GpuProgram;
use crate::runtime::KernelError;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

/// The first GPU of this machine with all that a forward pass needs: driver, compiler, products.
#[derive(Debug)]
pub struct Accelerator {
    // Dropped in this order: the context last.
    modules: Mutex<BTreeMap<GpuProgram, Module>>,
    pub(super) blas: Blas,
    /// A stream for work that is waited for at once: loading, and reading results.
    own: Mutex<GpuStream>,
    capability: (u32, u32),
    context: Context,
}

impl Accelerator {
    /// Opens the first GPU.
    ///
    /// # Errors
    /// The library that is missing (libcuda, libnvrtc or libcublasLt), or what the driver refuses.
    pub fn open() -> Result<Self, GpuUnavailable> {
        initialise()?;
        let absent = |reason: String| GpuUnavailable { reason, has_driver: true };
        nvrtc::find_nvrtc().map_err(absent)?;
        let open_first = || -> Result<_, KernelError> {
            let context = Context::open()?;
            let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32;
            let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
            Ok((context, (major, minor), GpuStream::new()?))
        };
        let (context, capability, stream) = open_first().map_err(|error| absent(error.to_string()))?;
        let blas = Blas::open().map_err(absent)?;
        let (modules, own) = (Mutex::new(BTreeMap::new()), Mutex::new(stream));
        Ok(Self { modules, blas, own, capability, context })
    }

    /// Its name: "NVIDIA H200".
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn name(&self) -> Result<String, KernelError> {
        self.context.name()
    }

    /// Makes the GPU current to this thread, which must precede all other use on it.
    ///
    /// # Errors
    /// [`KernelError::Gpu`].
    pub fn bind(&self) -> Result<(), KernelError> {
        self.context.bind()
    }

    /// Compiles programs, so that their first calls need not.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where NVRTC is too old for the GPU.
    pub fn prepare(&self, programs: &[GpuProgram]) -> Result<(), KernelError> {
        self.bind()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        for &program in programs {
            if let Entry::Vacant(entry) = modules.entry(program) {
                entry.insert(Module::load(&compile(program, self.capability)?)?);
            }
        }
        Ok(())
    }

    /// Its compute capability.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// A kernel of a program, which is compiled now if it was not yet.
    pub(super) fn function(&self, program: GpuProgram, kernel: &str) -> Result<sys::CUfunction, KernelError> {
        self.prepare(&[program])?;
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)[&program].function(kernel)
    }

    /// Waits for all its work.
    pub(super) fn synchronize(&self) -> Result<(), KernelError> {
        self.bind()?;
        self.context.synchronize()
    }

    /// Runs `act` with the GPU's own stream, on any thread.
    pub(super) fn with_own_stream<T>(
        &self,
        act: impl FnOnce(&GpuStream) -> Result<T, KernelError>,
    ) -> Result<T, KernelError> {
        self.bind()?;
        act(&self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        // Handles are freed on the thread that drops the last reference, to which the context must
        // be current.
        let _ = self.bind();
    }
}

/// A loaded program.
#[derive(Debug)]
struct Module(sys::CUmodule);

// SAFETY: any thread to which its context is current may pass a module to the driver's functions.
unsafe impl Send for Module {}

impl Module {
    fn load(code: &[u8]) -> Result<Self, KernelError> {
        // SAFETY: the code is whole, as NVRTC made it, and contains its own length.
        gpu_result("our kernels", unsafe { result::module::load_data(code.as_ptr().cast()) }).map(Self)
    }

    fn function(&self, name: &str) -> Result<sys::CUfunction, KernelError> {
        let name = gpu_result("a kernel's name", CString::new(name))?;
        // SAFETY: the module is live.
        gpu_result("a kernel of ours", unsafe { result::module::get_function(self.0, name) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: `load` loaded it. Queues keep this GPU and have waited for all calls.
        let _ = unsafe { result::module::unload(self.0) };
    }
}
