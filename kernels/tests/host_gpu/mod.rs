//! Runs the kernels of a GPU on the host: their text is compiled as C behind `block.c`.

use bytemuck::Pod;
use kernels::cuda::GpuProgram;
use kernels::cuda::calls::{GpuSlice, KernelCall};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

type Kernel = unsafe extern "C" fn(*const c_void);
type Run = unsafe extern "C" fn(Kernel, *const c_void, *const u32, u32, i32) -> *const c_char;

/// A text compiled for the host.
pub struct Library(*mut c_void);

impl Library {
    /// Compiles a text. Undefined behaviour (a misaligned load, a shift too far) later ends the
    /// test's process with SIGILL.
    pub fn compile(text: &str, name: &str, folder: &Path) -> Self {
        let block = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host_gpu/block.c");
        let block = std::fs::read_to_string(block).expect("the block's text");
        let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        std::fs::write(&source, block + text).expect("a folder to write to");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"])
            .args([
                "-Wno-unused-function",
                "-Wno-unknown-pragmas",
                "-fno-strict-aliasing",
                "-ffp-contract=off",
            ])
            .args(["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-o"])
            .args([&library, &source])
            .arg("-lm");
        let output =
            compiler.output().expect("a C compiler called cc: these tests run the kernels' text with it");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let path = CString::new(library.to_str().expect("a plain path")).expect("no zeros");
        // SAFETY: the path ends with a zero; the library has no initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{name} was compiled but is not loaded");
        Self(handle)
    }

    fn find(&self, name: &str) -> *mut c_void {
        let symbol = CString::new(name).expect("no zeros");
        // SAFETY: the library is loaded, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        assert!(!found.is_null(), "there is no {name}");
        found
    }

    fn number(&self, name: String) -> u32 {
        // SAFETY: block.c defines these as unsigned integers.
        unsafe { *self.find(&name).cast::<u32>() }
    }

    /// Runs a kernel over a grid; the error is what the block found wrong.
    pub fn run(
        &self,
        kernel: &str,
        grid: [u32; 3],
        threads: u32,
        arguments: &[u8],
        last_first: bool,
    ) -> Result<(), String> {
        let most = self.number(format!("threads_of_{kernel}"));
        assert!(threads <= most && threads.is_multiple_of(32), "{kernel}: {threads} threads of {most}");
        assert_eq!(
            self.number(format!("bytes_of_{kernel}")) as usize,
            arguments.len(),
            "{kernel}: bytes of arguments"
        );
        // SAFETY: block.c defines both with these types; the arguments have the size that the
        // kernel takes.
        let failure = unsafe {
            let run: Run = std::mem::transmute(self.find("run_on_host"));
            let function: Kernel = std::mem::transmute(self.find(kernel));
            run(function, arguments.as_ptr().cast(), grid.as_ptr(), threads, last_first.into())
        };
        if failure.is_null() {
            return Ok(());
        }
        // SAFETY: a pointer that is not null is a text that ends with a zero.
        Err(unsafe { CStr::from_ptr(failure) }.to_string_lossy().into_owned())
    }
}

/// The host in the role of a GPU, for one test.
pub struct Host {
    folder: TempDir,
    libraries: BTreeMap<GpuProgram, Library>,
    last_first: bool,
}

/// Runs a test twice: the first thread of a block goes first, then the last thread does.
pub fn each_order(test: impl Fn(&mut Host)) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut host = Host { folder, libraries: BTreeMap::new(), last_first: false };
    test(&mut host);
    host.last_first = true;
    test(&mut host);
}

impl Host {
    /// Runs a call to its end.
    pub fn run(&mut self, call: &KernelCall) {
        let program = call.program();
        let folder = self.folder.path();
        let compile = || {
            Library::compile(&program.text(), &format!("{}-{}", program.name(), program.constant()), folder)
        };
        let library = self.libraries.entry(program).or_insert_with(compile);
        let ran = library.run(call.kernel(), call.grid(), call.threads(), call.arguments(), self.last_first);
        ran.unwrap_or_else(|failure| panic!("{}: {failure}", call.kernel()));
    }
}

/// Values in memory that kernels reach, between bytes of ones. A kernel that reads those gets NaN
/// or a huge number, and `read` checks that they were not written.
pub struct Operand<T> {
    memory: Vec<u128>,
    len: usize,
    marker: PhantomData<T>,
}

/// Units of 16 bytes before the values, and after them.
const AROUND: usize = 8;

impl<T: Pod> Operand<T> {
    pub fn new(values: &[T]) -> Self {
        let mut operand = Self::unwritten(values.len());
        let bytes = bytemuck::cast_slice(values);
        operand.bytes()[16 * AROUND..][..bytes.len()].copy_from_slice(bytes);
        operand
    }

    /// Values whose bits are all ones.
    pub fn unwritten(len: usize) -> Self {
        let memory = vec![u128::MAX; 2 * AROUND + (len * size_of::<T>()).div_ceil(16)];
        Self { memory, len, marker: PhantomData }
    }

    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }

    pub fn values(&mut self) -> GpuSlice<T> {
        // SAFETY: tests keep their operands until calls have run; a call runs at once.
        unsafe { GpuSlice::new(self.memory[AROUND..].as_mut_ptr() as u64, self.len) }
    }

    pub fn read(&mut self) -> Vec<T> {
        let len = self.len * size_of::<T>();
        let bytes = self.bytes();
        let (before, rest) = bytes.split_at(16 * AROUND);
        let (bytes, after) = rest.split_at(len);
        assert!(
            before.iter().chain(after).all(|&byte| byte == 0xff),
            "something was written beside the values"
        );
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }
}
