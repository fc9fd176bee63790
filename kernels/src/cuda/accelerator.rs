//! A GPU that runs models: what all its queues share.

use super::context::{Context, Stream, initialise};
use super::product::Blas;
use super::{Absent, Program, compile, done};
use crate::Error;
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
    modules: Mutex<BTreeMap<Program, Module>>,
    pub(super) blas: Blas,
    /// For what is waited for at once: loading, and reading results.
    own: Mutex<Stream>,
    capability: (u32, u32),
    context: Context,
}

impl Accelerator {
    /// The first GPU.
    ///
    /// # Errors
    /// Which of libcuda, libnvrtc and libcublasLt is missing, or what the driver refuses.
    pub fn open() -> Result<Self, Absent> {
        initialise()?;
        let absent = |reason: String| Absent { reason, driver: true };
        super::nvrtc::look().map_err(absent)?;
        let of_first = || -> Result<_, Error> {
            let context = Context::open()?;
            let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32;
            let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
            Ok((context, (major, minor), Stream::new()?))
        };
        let (context, capability, stream) = of_first().map_err(|error| absent(error.to_string()))?;
        let blas = Blas::open().map_err(absent)?;
        let (modules, own) = (Mutex::new(BTreeMap::new()), Mutex::new(stream));
        Ok(Self { modules, blas, own, capability, context })
    }

    /// Its name: "NVIDIA H200".
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn name(&self) -> Result<String, Error> {
        self.context.name()
    }

    /// Lets this thread use it: threads that did not make what they use ask for this first.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn bind(&self) -> Result<(), Error> {
        self.context.bind()
    }

    /// Compiles programs, so that their first calls find them ready.
    ///
    /// # Errors
    /// [`Error::Gpu`] where NVRTC is too old for the GPU.
    pub fn prepare(&self, programs: &[Program]) -> Result<(), Error> {
        self.bind()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        for &program in programs {
            if let Entry::Vacant(entry) = modules.entry(program) {
                entry.insert(Module::load(&compile(program, self.capability)?)?);
            }
        }
        Ok(())
    }

    /// Compute capability.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// A kernel of a program, compiled now if it was not.
    pub(super) fn function(&self, program: Program, kernel: &str) -> Result<sys::CUfunction, Error> {
        self.prepare(&[program])?;
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)[&program].function(kernel)
    }

    /// Waits for all its work.
    pub(super) fn settle(&self) -> Result<(), Error> {
        self.bind()?;
        self.context.settle()
    }

    /// Does something with its own stream, from any thread.
    pub(super) fn by_itself<T>(&self, act: impl FnOnce(&Stream) -> Result<T, Error>) -> Result<T, Error> {
        self.bind()?;
        act(&self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        // What it has goes on whichever thread is the last to use it.
        let _ = self.bind();
    }
}

/// Loaded machine code.
#[derive(Debug)]
struct Module(sys::CUmodule);

// SAFETY: the driver's functions take a module from any thread to which its context is current.
unsafe impl Send for Module {}

impl Module {
    fn load(code: &[u8]) -> Result<Self, Error> {
        // SAFETY: the code is whole, as NVRTC made it; its length stands in it.
        done("our kernels", unsafe { result::module::load_data(code.as_ptr().cast()) }).map(Self)
    }

    fn function(&self, name: &str) -> Result<sys::CUfunction, Error> {
        let name = done("a kernel's name", CString::new(name))?;
        // SAFETY: the module is live.
        done("a kernel of ours", unsafe { result::module::get_function(self.0, name) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`; queues, which keep this GPU, have waited for all calls.
        let _ = unsafe { result::module::unload(self.0) };
    }
}
