//! The driver, its context, and the streams and events that order work.

use super::result::gpu_result;
use super::unavailable::GpuUnavailable;
use crate::runtime::KernelError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use hwprofiles::units::Seconds;
use std::ffi::CStr;

/// The oldest driver that has every function we call: the driver of CUDA 12.0.
const OLDEST: i32 = 12_000;

/// Initialises the driver and returns the number of GPUs.
pub(in crate::cuda) fn initialise() -> Result<usize, GpuUnavailable> {
    let absent = |has_driver, reason: String| GpuUnavailable { reason, has_driver };
    // SAFETY: loading these libraries runs no initialisers that affect this process.
    if !unsafe { sys::is_culib_present() } {
        return Err(absent(false, "libcuda.so.1, the NVIDIA driver's library, was not found".to_owned()));
    }
    let mut version = 0;
    // SAFETY: the pointer is to a live integer; this call needs no initialisation.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    asked.map_err(|error| {
        absent(true, format!("the NVIDIA driver does not tell its version: {}", name(error)))
    })?;
    if version < OLDEST {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(absent(
            true,
            format!("the NVIDIA driver is for CUDA {major}.{minor}: 12.0 or newer is needed"),
        ));
    }
    let count = result::init().and_then(|()| result::device::get_count());
    let count =
        count.map_err(|error| absent(true, format!("the NVIDIA driver finds no GPU: {}", name(error))))?;
    if count == 0 {
        return Err(absent(true, "the NVIDIA driver finds no GPU".to_owned()));
    }
    Ok(count as usize)
}

/// The name of an error: "CUDA_ERROR_NO_DEVICE".
fn name(error: DriverError) -> String {
    error
        .error_name()
        .map_or_else(|_| format!("{:?}", error.0), |name| CStr::to_string_lossy(name).into_owned())
}

/// The first GPU's primary context, which cuBLASLt shares.
#[derive(Debug)]
pub(in crate::cuda) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

impl Context {
    /// The context of the first GPU, made current to this thread.
    pub fn open() -> Result<Self, KernelError> {
        let device = gpu_result("the first GPU", result::device::get(0))?;
        // SAFETY: the device is one that the driver named.
        let raw = gpu_result("a context", unsafe { result::primary_ctx::retain(device) })?;
        let context = Self { device, raw };
        context.bind()?;
        Ok(context)
    }

    /// Makes the context current to this thread.
    pub fn bind(&self) -> Result<(), KernelError> {
        // SAFETY: the context lives as long as `self`.
        gpu_result("a context for a thread", unsafe { result::ctx::set_current(self.raw) })
    }

    /// The GPU's name.
    pub fn name(&self) -> Result<String, KernelError> {
        gpu_result("its name", result::device::get_name(self.device))
    }

    /// An attribute of the GPU.
    pub fn attribute(&self, which: sys::CUdevice_attribute) -> Result<u64, KernelError> {
        // SAFETY: the device is one that the driver named.
        let value = gpu_result("an attribute", unsafe { result::device::get_attribute(self.device, which) })?;
        Ok(value.max(0) as u64)
    }

    /// Waits for all work of all streams.
    pub fn synchronize(&self) -> Result<(), KernelError> {
        // SAFETY: the context is current, because callers call `bind` first.
        gpu_result("to finish all work", unsafe { sys::cuCtxSynchronize() }.result())
    }

    /// Bytes of the GPU's memory: free, and all.
    pub fn memory(&self) -> Result<(u64, u64), KernelError> {
        let (free, total) = gpu_result("the size of its memory", result::mem_get_info())?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `open` retained it once, and everything made in it was dropped before. An error
        // here cannot be handled.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

// SAFETY: any thread to which the context is current may call the driver's functions; the handle
// itself never changes.
unsafe impl Sync for Context {}
// SAFETY: as above; no thread owns it.
unsafe impl Send for Context {}

/// A stream of work.
#[derive(Debug)]
pub(in crate::cuda) struct GpuStream(sys::CUstream);

// SAFETY: any thread may pass a stream to the driver's functions; the handle itself never changes.
unsafe impl Sync for GpuStream {}
// SAFETY: as above; no thread owns it.
unsafe impl Send for GpuStream {}

impl GpuStream {
    /// A stream that waits for no other stream.
    pub fn new() -> Result<Self, KernelError> {
        gpu_result("a stream", result::stream::create(result::stream::StreamKind::NonBlocking)).map(Self)
    }

    /// Its handle, valid as long as `self`.
    pub fn raw(&self) -> sys::CUstream {
        self.0
    }

    /// Waits until all its work is done.
    pub fn wait(&self) -> Result<(), KernelError> {
        // SAFETY: the stream is live.
        gpu_result("to finish its work", unsafe { result::stream::synchronize(self.0) })
    }

    /// Records `event`: it happens when all earlier work of the stream is done.
    pub fn record(&self, event: &GpuEvent) -> Result<(), KernelError> {
        // SAFETY: both are live and of the same context.
        gpu_result("to record an event", unsafe { result::event::record(event.0, self.0) })
    }

    /// As [`GpuStream::record`] while a graph is recorded: the event becomes a node of the graph.
    pub fn record_in_graph(&self, event: &GpuEvent) -> Result<(), KernelError> {
        let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both are live and of the same context. The caller keeps the event longer than the
        // graph.
        let recorded = unsafe { sys::cuEventRecordWithFlags(event.0, self.0, flags) };
        gpu_result("to record an event", recorded.result())
    }

    /// Lets no later work of the stream start before `event` happens.
    pub fn follow(&self, event: &GpuEvent) -> Result<(), KernelError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are live and of the same context.
        gpu_result("to wait for an event", unsafe { result::stream::wait_event(self.0, event.0, flags) })
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and it is not used afterwards.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

/// A point in a GPU's stream of work.
#[derive(Debug)]
pub struct GpuEvent(sys::CUevent);

// SAFETY: any thread may pass an event to the driver's functions; the handle itself never changes.
unsafe impl Sync for GpuEvent {}
// SAFETY: as above; no thread owns it.
unsafe impl Send for GpuEvent {}

impl GpuEvent {
    /// An event that was not recorded yet; waiting for it returns at once. It belongs to the
    /// context of this thread, which must live longer.
    ///
    /// # Errors
    /// [`KernelError::Gpu`], as for all calls.
    pub fn new() -> Result<Self, KernelError> {
        gpu_result("an event", result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)).map(Self)
    }

    /// Waits until it has happened.
    ///
    /// # Errors
    /// [`KernelError::Gpu`], also where earlier work failed.
    pub fn wait(&self) -> Result<(), KernelError> {
        // SAFETY: the event is live.
        gpu_result("to wait for an event", unsafe { result::event::synchronize(self.0) })
    }

    /// The time from `start` to this event; both must have happened. The clock ticks every half
    /// microsecond.
    ///
    /// # Errors
    /// [`KernelError::Gpu`] where one has not happened.
    pub fn since(&self, start: &GpuEvent) -> Result<Seconds, KernelError> {
        type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
        // The bindings of CUDA 13 have only `cuEventElapsedTime_v2`, which drivers before 12.8
        // lack. All drivers have this one.
        // SAFETY: the type is that of the function in cuda.h; `initialise` found the library.
        let elapsed = gpu_result("cuEventElapsedTime", unsafe {
            sys::culib().get::<Elapsed>(b"cuEventElapsedTime\0")
        })?;
        let mut milliseconds = 0.0;
        // SAFETY: the pointer is to a live float; both events are live.
        let asked = unsafe { elapsed(&mut milliseconds, start.0, self.0) };
        gpu_result("the time between events", asked.result())?;
        Ok(Seconds::new(f64::from(milliseconds) / 1e3))
    }
}

impl Drop for GpuEvent {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and it is not used afterwards.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
