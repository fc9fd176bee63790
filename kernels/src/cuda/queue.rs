//! Calls of our kernels on a GPU, one after another.

use super::calls::{Call, Values};
use super::context::{Context, Stream, initialise};
use super::memory::DeviceMemory;
use super::{Absent, Program, compile, done};
use crate::Error;
use bytemuck::Pod;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};

/// The first GPU's queue of calls, the kernels compiled so far, and the memory that was asked for.
#[derive(Debug)]
pub struct Queue {
    // Dropped in this order: the context last.
    modules: BTreeMap<Program, Module>,
    memory: Vec<DeviceMemory>,
    stream: Stream,
    capability: (u32, u32),
    /// Keeps the GPU's context.
    _context: Context,
}

impl Queue {
    /// Of the first GPU. NVRTC is looked for when a kernel is first called.
    pub fn open() -> Result<Self, Absent> {
        initialise()?;
        Self::of_first().map_err(|error| Absent { reason: error.to_string(), driver: true })
    }

    fn of_first() -> Result<Self, Error> {
        let context = Context::open()?;
        let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32;
        let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
        let stream = Stream::new()?;
        Ok(Self {
            modules: BTreeMap::new(),
            memory: Vec::new(),
            stream,
            capability: (major, minor),
            _context: context,
        })
    }

    /// A copy of `values` in the GPU's memory, which stays until the queue is dropped.
    ///
    /// # Errors
    /// [`Error::Gpu`] where there is no room.
    pub fn keep<T: Pod>(&mut self, values: &[T]) -> Result<Values<T>, Error> {
        let bytes = bytemuck::cast_slice(values);
        // An allocation of nothing is refused.
        let memory = DeviceMemory::new(bytes.len().max(1))?;
        memory.upload(0, bytes, &self.stream)?;
        let at = Values::new(memory.at(0, bytes.len()), values.len());
        self.memory.push(memory);
        Ok(at)
    }

    /// What lies in memory that [`Queue::keep`] gave, when all calls before are done.
    ///
    /// # Errors
    /// [`Error::Gpu`], also where a call before went wrong.
    ///
    /// # Panics
    /// Where the values are not all of one [`Queue::keep`].
    pub fn read<T: Pod>(&self, values: Values<T>) -> Result<Vec<T>, Error> {
        let len = values.len() * size_of::<T>();
        let within = |memory: &&DeviceMemory| {
            let offset = values.address().checked_sub(memory.at(0, 0));
            offset.is_some_and(|offset| offset as usize + len <= memory.len())
        };
        let memory = self.memory.iter().find(within).expect("values that this queue keeps");
        let offset = (values.address() - memory.at(0, 0)) as usize;
        let bytes = memory.download(offset, len, &self.stream)?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    /// Enqueues a call; the first of a program compiles it.
    ///
    /// # Errors
    /// [`Error::Gpu`] where there is no NVRTC, or the GPU refuses.
    ///
    /// # Safety
    /// All [`Values`] of the call are in this GPU's memory until it is done, what is written is used by no one else
    /// meanwhile, and tables, positions and tokens stay inside what they point into.
    pub unsafe fn run(&mut self, call: &Call) -> Result<(), Error> {
        let [x, y, z] = call.grid();
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        let program = call.program();
        if !self.modules.contains_key(&program) {
            self.modules.insert(program, Module::load(&compile(program, self.capability)?)?);
        }
        let function = self.modules[&program].function(call.kernel())?;
        // A kernel takes one structure; the driver copies it before the call returns.
        let mut parameters = [call.arguments().as_ptr().cast_mut().cast::<c_void>()];
        let threads = (call.threads(), 1, 1);
        // SAFETY: the kernel is live and its one parameter is as long as the structure that `Call` made for it; what it
        // points to is the caller's word.
        let launched = unsafe {
            result::launch_kernel(function, (x, y, z), threads, 0, self.stream.raw(), &mut parameters)
        };
        done(call.kernel(), launched)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What is enqueued must be done before its memory goes.
        let _ = self.stream.wait();
    }
}

/// Loaded machine code.
#[derive(Debug)]
struct Module(sys::CUmodule);

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
        // SAFETY: loaded by `load`; the queue has waited for all calls.
        let _ = unsafe { result::module::unload(self.0) };
    }
}
