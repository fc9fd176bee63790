//! The contents of the files that a sweep names.

use crate::pipeline::this_host_file;
use hwprofiles::{hexadecimal, yaml};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Every file that some text of some document names, with its digest: machines, their parts,
/// models, traces. A text that names no file stands for itself.
#[derive(Debug, Default)]
pub(crate) struct FileDigests(BTreeMap<PathBuf, String>);

impl FileDigests {
    /// Adds the files that `value` names, relative to any of `folders`, and the files that those
    /// name.
    pub(crate) fn add(&mut self, value: &Value, folders: &[&Path]) {
        match value {
            Value::String(text) if text == "this" => self.add_file(&this_host_file()),
            Value::String(text) if !text.is_empty() => {
                for folder in folders {
                    let path = folder.join(text);
                    if path.is_file() {
                        self.add_file(&path);
                    } else if path.is_dir() {
                        self.add_file(&path.join("config.json"));
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|value| self.add(value, folders)),
            Value::Object(entries) => entries.values().for_each(|value| self.add(value, folders)),
            _ => {}
        }
    }

    /// The files and their digests, as a sweep's identity has them.
    pub(crate) fn identity(&self) -> Value {
        self.0.iter().map(|(path, digest)| (path.display().to_string(), digest.as_str())).collect()
    }

    fn add_file(&mut self, path: &Path) {
        if self.0.contains_key(path) {
            return;
        }
        let Some(digest) = digest(path) else { return };
        self.0.insert(path.to_owned(), digest);
        // A machine's file names its parts.
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml
            && let Ok(text) = hwprofiles::read_text(path)
            && let Ok(value) = yaml::read::<Value>(&text, &path.display().to_string())
        {
            self.add(&value, &[path.parent().unwrap_or(Path::new(""))]);
        }
    }
}

/// A file of weights stands for itself by its length and its first bytes, this many: they hold the
/// model's description, and no sweep reads the weights behind it.
const WEIGHTS_READ: u64 = 1 << 26;

/// Whether a file holds weights.
fn holds_weights(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gguf" || extension == "safetensors")
}

/// The SHA-256 of a file; `None` where it cannot be read.
pub(crate) fn digest(path: &Path) -> Option<String> {
    let file = hwprofiles::open_input(path).ok()?;
    let mut hasher = Sha256::new();
    hasher.update(file.metadata().ok()?.len().to_le_bytes());
    let most = if holds_weights(path) { WEIGHTS_READ } else { u64::MAX };
    let (mut file, mut part) = (file.take(most), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(bytes) => hasher.update(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(hexadecimal(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_byte_anywhere_makes_another_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.csv");
        let file = File::create(&path).expect("a file");
        file.set_len((1 << 26) + 1000).expect("room");
        let before = digest(&path).expect("read");
        file.write_all_at(b"x", (1 << 26) + 999).expect("written");
        assert_ne!(digest(&path).expect("read"), before);
    }
}
