//! Lists the publications of `published/`, so that a system is reproduced because its files are
//! there: a `.yaml` that describes it, with its rows in a `.csv` of the same name.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("published");
    println!("cargo::rerun-if-changed=published");
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
        format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/published/{name}.{kind}\"))")
    };
    let entry =
        |name: &String| format!("    ({name:?}, {}, {}),\n", include(name, "yaml"), include(name, "csv"));
    let list = format!("&[\n{}]\n", names.iter().map(entry).collect::<String>());
    fs::write(Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("published.rs"), list)
}
