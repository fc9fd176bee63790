//! The contents of the files that a sweep names.

use crate::pipeline::this_host_file;
use hwprofiles::yaml;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
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
            && let Ok(text) = std::fs::read_to_string(path)
            && let Ok(value) = yaml::read::<Value>(&text, &path.display().to_string())
        {
            self.add(&value, &[path.parent().unwrap_or(Path::new(""))]);
        }
    }
}

/// A longer file stands for itself by its length and its first bytes, this many: it holds weights,
/// and their description is in front.
const MOST_BYTES: usize = 1 << 26;

/// The SHA-256 of a file; `None` where it cannot be read.
pub(crate) fn digest(path: &Path) -> Option<String> {
    let (mut file, mut hasher) = (File::open(path).ok()?, Sha256::new());
    hasher.update(file.metadata().ok()?.len().to_le_bytes());
    let (mut part, mut left) = (vec![0; 1 << 16], MOST_BYTES);
    while left > 0 {
        let bytes = file.read(&mut part).ok()?;
        if bytes == 0 {
            break;
        }
        hasher.update(&part[..bytes]);
        left = left.saturating_sub(bytes);
    }
    Some(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
