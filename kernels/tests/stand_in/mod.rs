//! Builds the stand-in for CUDA's libraries, and runs programs with it.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Builds the stand-in in a folder, under the names of CUDA's libraries.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("stand_in.so");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tests");
    let block = format!("-DBLOCK=\"{}\"", tests.join("host_gpu/block.c").display());
    // Rust links with `cc`, so it is installed.
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&library)
        .args(["cuda.c", "modules.c", "blas.c"].map(|file| tests.join("stand_in").join(file)))
        .arg(block)
        .status();
    assert!(built.expect("a C compiler, as Rust itself needs").success());
    // All names are links to one file, so that the loader takes them for one library with one
    // state.
    for name in ["cuda.so", "cuda.so.1", "cublasLt.so", "cublasLt.so.12", "nvrtc.so", "nvrtc.so.12"] {
        std::os::unix::fs::symlink(&library, folder.path().join(format!("lib{name}"))).expect("a link");
    }
    folder
}

/// Runs the test `name` of this program again, with the stand-in instead of CUDA's libraries.
pub fn run(name: &str) -> Output {
    run_in(&folder(), name, "")
}

/// As [`run`], with streams in the order that `words` ask for (see cuda.c), and with calls that can
/// be made to fail.
pub fn run_in(folder: &TempDir, name: &str, words: &str) -> Output {
    let test = std::env::current_exe().expect("this program");
    let mut command = Command::new(test);
    command.args(["--exact", name, "--nocapture"]).env("LD_LIBRARY_PATH", folder.path());
    command.env("STAND_IN_FAULT", folder.path().join("fault"));
    match words {
        "" => command.env_remove("STAND_IN"),
        words => command.env("STAND_IN", words),
    };
    command.output().expect("this program runs again")
}
