//! Builds the stand-in for CUDA's libraries, and runs a test of this program with it.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the test `name` of this very program where the stand-in is found instead of CUDA.
pub fn run(name: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("stand_in.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tests/stand_in/cuda.c");
    // Rust links with `cc`, so it is there.
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.expect("a C compiler, as Rust itself needs").success());
    // Links to one file: the loader then takes both for one library, so that they share what they know.
    for name in ["libcuda.so", "libcuda.so.1", "libcublasLt.so", "libcublasLt.so.12"] {
        std::os::unix::fs::symlink(&library, folder.path().join(name)).expect("a link");
    }
    let test = std::env::current_exe().expect("this program");
    let output = Command::new(test)
        .args(["--exact", name, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .output();
    output.expect("this program runs again")
}
