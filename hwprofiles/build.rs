//! Lists the files below `data/`, so that a profile is shipped by being there. What was measured
//! for tests is not shipped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("data");
    println!("cargo::rerun-if-changed=data");
    let mut files = Vec::new();
    collect(&data, &mut files)?;
    // By folder, then by name: `a.yaml` before `a-b.yaml`.
    files.sort_by_key(|file| (file.parent().map(Path::to_path_buf), file.file_stem().map(OsString::from)));
    let entry = |file: &PathBuf| {
        let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        format!("    ({name:?}, include_str!({:?})),\n", file.display().to_string())
    };
    let list = format!("&[\n{}]\n", files.iter().map(entry).collect::<String>());
    fs::write(Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("shipped.rs"), list)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.ends_with("data/measured") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}
