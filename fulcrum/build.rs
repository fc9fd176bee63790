//! Lists the publications of `scenarios/published`, and gives this build an identity.
//!
//! A system is reproduced because its files are there: a `.yaml` that describes it, with its rows
//! in a `.csv` of the same name.
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
    println!("cargo::rustc-env=FULCRUM_BUILD={}", build_identity(&home.join(".."))?);
    let folder = home.join("../scenarios/published");
    println!("cargo::rerun-if-changed=../scenarios/published");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            names.push(path.file_stem().expect("a file has a name").to_string_lossy().into_owned());
        }
    }
    names.sort();
    // The path is formed by the compiler, so that a build folder can be moved with its source.
    let include = |name: &str, kind: &str| {
        format!(
            "include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../scenarios/published/{name}.{kind}\"))"
        )
    };
    let entry =
        |name: &String| format!("    ({name:?}, {}, {}),\n", include(name, "yaml"), include(name, "csv"));
    let list = format!("&[\n{}]\n", names.iter().map(entry).collect::<String>());
    fs::write(Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("published.rs"), list)
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

/// A digest of the names and contents of the sources that are there. A crate that is built outside
/// of its workspace has its own alone; the versions of the others are fixed then.
fn build_identity(workspace: &Path) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    env::var("TARGET").expect("set by cargo").hash(&mut hasher);
    for source in SOURCES {
        let path = workspace.join(source);
        if !path.exists() {
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
    const KINDS: [&str; 6] = ["rs", "yaml", "csv", "json", "lock", "txt"];
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
