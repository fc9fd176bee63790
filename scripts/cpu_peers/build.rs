//! Compiles `stream.c` as STREAM's readers compile it, and links OpenBLAS.

use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo:rerun-if-changed=stream.c");
    let object = format!("{out}/stream.o");
    let flags = ["-O3", "-march=native", "-fopenmp", "-ffast-math", "-c", "stream.c", "-o", &object];
    run("gcc", &flags);
    run("ar", &["crs", &format!("{out}/libstream_peer.a"), &object]);
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=stream_peer");
    println!("cargo:rustc-link-lib=gomp");
    println!("cargo:rustc-link-lib=openblas");
    // libgomp's unversioned name lies in gcc's own folder.
    let output = Command::new("gcc").arg("-print-file-name=libgomp.so").output().expect("gcc");
    let path = String::from_utf8(output.stdout).expect("a path");
    if let Some((folder, _)) = path.trim().rsplit_once('/') {
        println!("cargo:rustc-link-search=native={folder}");
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect(program);
    assert!(status.success(), "{program} failed");
}
