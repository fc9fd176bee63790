//! Compilation of our kernels at run time by NVRTC.

use super::result::gpu_result;
use crate::cuda::program::GpuProgram;
use crate::runtime::KernelError;
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString, c_char};

/// Compiles `program` to machine code for a GPU of this compute capability. PTX would not do: a
/// driver older than NVRTC does not load it.
///
/// # Errors
/// [`KernelError::Gpu`] where there is no NVRTC, or it is too old for the GPU.
pub fn compile(program: GpuProgram, (major, minor): (u32, u32)) -> Result<Vec<u8>, KernelError> {
    let what = || format!("to compile {}.cu for compute capability {major}.{minor}", program.name());
    find_nvrtc().map_err(|reason| KernelError::Gpu { what: what(), reason })?;
    let (text, name) = (
        gpu_result(what(), CString::new(program.text()))?,
        gpu_result(what(), CString::new(program.name()))?,
    );
    let unit = Compilation(gpu_result(what(), result::create_program(&text, Some(&name)))?);
    let option = format!("--gpu-architecture=sm_{major}{minor}");
    // SAFETY: the compilation is live.
    let compiled = unsafe { result::compile_program(unit.0, &[option]) };
    compiled
        .map_err(|error| KernelError::Gpu { what: what(), reason: format!("{error}: {}", unit.log()) })?;
    gpu_result(what(), unit.code())
}

/// Looks for NVRTC; the error says what to do where it is missing.
pub(in crate::cuda) fn find_nvrtc() -> Result<(), String> {
    // SAFETY: loading these libraries runs no initialisers that affect this process.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    let advice = "install it (PyPI: nvidia-cuda-nvrtc) and name its folder in LD_LIBRARY_PATH";
    Err(format!("libnvrtc.so.13 or .12 was not found: {advice}"))
}

/// A text and its compilation.
struct Compilation(sys::nvrtcProgram);

impl Compilation {
    /// The compiler's messages.
    fn log(&self) -> String {
        // SAFETY: the compilation is live and has ended.
        let Ok(log) = (unsafe { result::get_program_log(self.0) }) else { return String::new() };
        let bytes: &[u8] = bytemuck::cast_slice::<c_char, u8>(&log);
        CStr::from_bytes_until_nul(bytes)
            .map_or_else(|_| String::new(), |log| log.to_string_lossy().into_owned())
    }

    fn code(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut size = 0;
        // SAFETY: the text was compiled for a real architecture, and the pointer is to a live
        // integer.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result()?;
        let mut code = vec![0u8; size];
        // SAFETY: as above; there is room for all bytes.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }.result()?;
        Ok(code)
    }
}

impl Drop for Compilation {
    fn drop(&mut self) {
        // SAFETY: `compile` created it, and it is not used afterwards.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
