//! The workspace's crates and their source files, parsed.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates in the order in which they may depend on each other, from the bottom up, with the
/// crates that each may use.
pub const MAY_USE: &[(&str, &[&str])] = &[
    ("hwprofiles", &[]),
    ("kernels", &["hwprofiles"]),
    ("scenarios", &["hwprofiles"]),
    ("microbench", &["hwprofiles", "kernels"]),
    ("planner", &["hwprofiles", "scenarios"]),
    ("sim", &["hwprofiles", "scenarios", "planner"]),
    ("executor", &["hwprofiles", "scenarios", "planner", "kernels"]),
    ("reports", &["hwprofiles", "scenarios", "planner", "sim"]),
    (
        "fulcrum",
        &["hwprofiles", "kernels", "scenarios", "microbench", "planner", "sim", "executor", "reports"],
    ),
    ("server", &["scenarios", "sim", "fulcrum"]),
    (
        "cli",
        &[
            "hwprofiles",
            "kernels",
            "scenarios",
            "microbench",
            "planner",
            "sim",
            "executor",
            "reports",
            "fulcrum",
            "server",
        ],
    ),
    ("xtask", &[]),
];

/// The folder of the workspace that this program was built in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// One Rust file.
pub struct SourceFile {
    /// Its path below the workspace's root, with `/`.
    pub path: String,
    /// Its module path below the crate's root: `["serving", "kv", "blocks"]`; empty for the root.
    pub module: Vec<String>,
    /// Its text.
    pub text: String,
    /// Its syntax tree.
    pub syntax: syn::File,
    /// Whether it is compiled for tests alone.
    pub is_test: bool,
}

/// One crate of the workspace.
pub struct Crate {
    /// The folder's name.
    pub name: String,
    /// The manifest's text.
    pub manifest: String,
    /// The files under `src`, sorted by path.
    pub sources: Vec<SourceFile>,
    /// Path and text of the files under `tests`, `benches` and `examples`, sorted by path.
    pub others: Vec<(String, String)>,
}

/// All crates.
pub struct Workspace {
    /// From the bottom up.
    pub crates: Vec<Crate>,
}

impl Workspace {
    /// Reads the workspace that this program was built in.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, by name.
    pub fn read() -> Result<Self> {
        Self::read_from(&root())
    }

    /// Reads the workspace in the folder `root`.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, by name.
    pub fn read_from(root: &Path) -> Result<Self> {
        let crates = MAY_USE.iter().map(|(name, _)| Crate::read(root, name)).collect::<Result<_>>()?;
        Ok(Self { crates })
    }

    /// Path and text of every Rust file.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.crates.iter().flat_map(|member| {
            let sources = member.sources.iter().map(|file| (file.path.as_str(), file.text.as_str()));
            sources.chain(member.others.iter().map(|(path, text)| (path.as_str(), text.as_str())))
        })
    }

    /// Every source file, with its crate.
    pub fn sources(&self) -> impl Iterator<Item = &SourceFile> {
        self.crates.iter().flat_map(|member| &member.sources)
    }
}

impl Crate {
    fn read(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join(name);
        let manifest = folder.join("Cargo.toml");
        let manifest = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let mut sources = rust_files(&folder.join("src"))?
            .into_iter()
            .map(|path| SourceFile::read(root, &folder.join("src"), &path))
            .collect::<Result<Vec<_>>>()?;
        let tests: Vec<_> = sources.iter().flat_map(test_modules).collect();
        for file in &mut sources {
            file.is_test = tests.iter().any(|module| file.module.starts_with(module));
        }
        let mut others = Vec::new();
        for part in ["tests", "benches", "examples"] {
            for path in rust_files(&folder.join(part))? {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                others.push((relative(root, &path), text));
            }
        }
        Ok(Self { name: name.to_owned(), manifest, sources, others })
    }
}

impl SourceFile {
    fn read(root: &Path, src: &Path, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let syntax = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let mut module: Vec<String> =
            relative(src, path).trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        Ok(Self { path: relative(root, path), module, text, syntax, is_test: false })
    }
}

/// The modules that a file declares for tests alone.
fn test_modules(file: &SourceFile) -> Vec<Vec<String>> {
    let modules = file.syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(item) if item.content.is_none() && is_test(&item.attrs) => Some(&item.ident),
        _ => None,
    });
    modules.map(|ident| file.module.iter().cloned().chain([ident.to_string()]).collect()).collect()
}

/// Whether `attributes` hold `#[cfg(test)]`.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test")
    })
}

/// The Rust files below `folder`, sorted; none where the folder is missing.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(files) };
    for entry in entries {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string().replace('\\', "/")
}
