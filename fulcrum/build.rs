//! Gives this build an identity.
//!
//! Builds of one version differ, and answers that one of them keeps are not those of another. The
//! identity is a digest of everything that the numbers of a sweep depend on, so that all builds of
//! the same sources have the same.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let home = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let workspace = home.join("..");
    println!("cargo::rustc-env=FULCRUM_BUILD={}", build_identity(&workspace, &SOURCES)?);
    println!("cargo::rustc-env=FULCRUM_RUN_BUILD={}", build_identity(&workspace, &RUN_SOURCES)?);
    Ok(())
}

/// What the numbers of a sweep depend on, below the workspace's folder.
const SOURCES: [&str; 12] = [
    "Cargo.lock",
    "hwprofiles/src",
    "hwprofiles/data",
    "scenarios/src",
    "scenarios/models",
    "scenarios/published",
    "scenarios/engines",
    "planner/src",
    "sim/src",
    "sim/data",
    "reports/src",
    "fulcrum/src",
];

/// What an answer of a model depends on beside them.
const RUN_SOURCES: [&str; 2] = ["executor/src", "kernels/src"];

/// A digest of the names and contents of the sources that are there. A crate that is built outside
/// of its workspace, as a package, is told by its version, which fixes those of the others.
fn build_identity(workspace: &Path, sources: &[&str]) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    for known in ["TARGET", "CARGO_PKG_VERSION"] {
        env::var(known).expect("set by cargo").hash(&mut hasher);
    }
    for source in sources {
        let path = workspace.join(source);
        if !workspace.join("Cargo.toml").exists() || !path.exists() {
            continue;
        }
        println!("cargo::rerun-if-changed=../{source}");
        let mut files = BTreeSet::new();
        files_below(&path, &mut files)?;
        for file in files {
            file.strip_prefix(workspace).expect("it is below").to_string_lossy().hash(&mut hasher);
            fs::read(&file)?.hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn files_below(path: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    const KINDS: [&str; 8] = ["rs", "yaml", "csv", "json", "lock", "txt", "cu", "ptx"];
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            files_below(&entry?.path(), files)?;
        }
    } else if path.extension().is_some_and(|kind| KINDS.iter().any(|known| kind == *known)) && path.is_file()
    {
        files.insert(path.to_owned());
    }
    Ok(())
}
