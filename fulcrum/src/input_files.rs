//! The files that are read for an answer. They are found before anything is written, so that no
//! output replaces one of them.

use crate::error::{Error, Result};
#[cfg(feature = "run")]
use crate::error::{ErrorContext, OrError};
use crate::file_digest::content_digest;
#[cfg(feature = "run")]
use crate::file_digest::weights_digest;
use crate::pipeline::this_host_file;
use hwprofiles::yaml;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// The most bytes of a document that is searched for the names of files. Larger files are tables
/// and weights.
const MOST_DOCUMENT: u64 = 8 << 20;

/// Files and model folders: those that somebody named, those that these name, and so on. A text
/// that leads to no file names none.
#[derive(Debug, Clone, Default)]
pub struct InputFiles {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    pipes: BTreeSet<PathBuf>,
}

impl InputFiles {
    /// Adds the files that an argument names: the path that it is (where `-` is standard input), or
    /// what its text or the value of a setting (`machine=mine.yaml`) names.
    pub fn add_argument(&mut self, value: &OsStr, is_path: bool) {
        let text = value.to_string_lossy();
        match is_path {
            true if hwprofiles::is_stdin(Path::new(value)) => self.add_path(Path::new("/dev/stdin")),
            true => self.add_path(Path::new(value)),
            false => self.add_text(text.split_once('=').map_or(&*text, |(_, setting)| setting)),
        }
    }

    /// Adds the files that `text` names: a path, `this`, or YAML with such texts in it. Relative
    /// paths start at the current folder.
    pub fn add_text(&mut self, text: &str) {
        self.add_value(&Value::from(text), &[Path::new("")]);
        if let Ok(value @ (Value::Array(_) | Value::Object(_))) = yaml::read::<Value>(text, "argument") {
            self.add_value(&value, &[Path::new("")]);
        }
    }

    /// Adds the files that the texts of `value` name, relative to any of `folders`.
    pub(crate) fn add_value(&mut self, value: &Value, folders: &[&Path]) {
        match value {
            Value::String(text) if text == "this" => self.add_path(&this_host_file()),
            Value::String(text) if !text.is_empty() => {
                folders.iter().for_each(|folder| self.add_path(&folder.join(text)));
            }
            Value::Array(all) => all.iter().for_each(|value| self.add_value(value, folders)),
            Value::Object(entries) => entries.values().for_each(|value| self.add_value(value, folders)),
            _ => {}
        }
    }

    /// Adds a file with those that it names, or a folder.
    pub fn add_path(&mut self, path: &Path) {
        let Ok(found) = path.metadata() else { return };
        if found.is_dir() {
            self.folders.insert(path.to_owned());
            return;
        }
        let is_new = match found.is_file() {
            true => self.files.insert(path.to_owned()),
            false => hwprofiles::is_open_already(path) && self.pipes.insert(path.to_owned()),
        };
        if is_new && found.len() <= MOST_DOCUMENT && !is_table_or_weights(path) {
            self.add_document(path);
        }
    }

    /// Adds the files that a document names. A pipe is read ahead, and names files relative to the
    /// current folder.
    fn add_document(&mut self, path: &Path) {
        let is_open = hwprofiles::is_open_already(path);
        let folder = path.parent().filter(|_| !is_open).unwrap_or(Path::new(""));
        if let Ok(Some(text)) = hwprofiles::read_ahead(path, MOST_DOCUMENT)
            && let Ok(value) = yaml::read::<Value>(&text, "")
        {
            self.add_value(&value, &[folder]);
        }
    }

    /// The input that is the same file as `path`, by whatever name: links to one file are one file.
    pub fn same_as(&self, path: &Path) -> Option<PathBuf> {
        let found = path.metadata().ok().filter(Metadata::is_file)?;
        self.all().find(|input| input.metadata().is_ok_and(|other| is_one_file(path, &found, input, &other)))
    }

    /// The files, those in folders, and those that are read with another.
    fn all(&self) -> impl Iterator<Item = PathBuf> {
        let within = self.folders.iter().flat_map(|folder| read_of_folder(folder));
        let beside = self.files.iter().flat_map(|file| read_beside(file));
        self.files.iter().cloned().chain(within).chain(beside)
    }

    /// The files, without those in folders.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter()
    }

    /// What they hold, as a sweep's identity has it: a digest of each file.
    pub(crate) fn identity(&self) -> Value {
        let digest = |path: PathBuf| Some((path.display().to_string(), Value::from(content_digest(&path)?)));
        self.all().filter_map(digest).collect()
    }

    /// The same for a task that computes with the weights among them.
    ///
    /// # Errors
    /// A file cannot be read.
    #[cfg(feature = "run")]
    pub(crate) fn weights_identity(&self) -> Result<Value> {
        let digest = |path: PathBuf| {
            let digest = weights_digest(&path).or_input();
            Ok((path.display().to_string(), Value::from(digest.within(|| path.display().to_string())?)))
        };
        self.all().map(digest).collect()
    }

    /// Refuses each of the files to write that is an input.
    ///
    /// # Errors
    /// The file, and the input that it would replace.
    pub fn refuse<P: AsRef<Path>>(&self, written: impl IntoIterator<Item = P>) -> Result {
        for path in written {
            if let Some(input) = self.same_as(path.as_ref()) {
                let (path, input) = (path.as_ref().display(), input.display());
                let reason = "is the same file, which is read: give it another name";
                return Err(Error::input(format!("{path}: {input} {reason}")));
            }
        }
        Ok(())
    }
}

/// Whether two paths that were found lead to one file.
#[cfg(unix)]
fn is_one_file(_: &Path, one: &Metadata, _: &Path, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_one_file(one: &Path, _: &Metadata, other: &Path, _: &Metadata) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|found| endings.iter().any(|ending| found.eq_ignore_ascii_case(ending)))
}

/// Whether a file names no other, by the ending of its name.
fn is_table_or_weights(path: &Path) -> bool {
    has_ending(path, &["csv", "jsonl", "parquet", "gguf", "safetensors", "html", "svg", "png"])
}

/// The files that may be read where their folder is named: those of a model, of a recorded run, or
/// of parts of machines. Answers that somebody keeps in the folder of a model are none.
fn read_of_folder(folder: &Path) -> Vec<PathBuf> {
    let is_model = folder.join("config.json").exists();
    let is_read = |path: &PathBuf| is_model_or_run(path) || !is_model && has_ending(path, &["yaml", "yml"]);
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_read).collect()
}

/// The files that are read with a GGUF file: its other shards, `NAME-00002-of-00003.gguf`, and a
/// tokenizer.
fn read_beside(file: &Path) -> Vec<PathBuf> {
    const GGUF: &[&str] = &["gguf"];
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let own = name(file);
    let shards =
        own.split_once("-of-").map(|(start, _)| start.trim_end_matches(|c: char| c.is_ascii_digit()));
    let is_read = |path: &PathBuf| {
        let is_shard = shards.is_some_and(|shards| name(path).starts_with(shards)) && has_ending(path, GGUF);
        path.as_path() != file && (is_shard || path.ends_with("tokenizer.json"))
    };
    let folder = file.parent().filter(|_| has_ending(file, GGUF));
    let folder = folder.map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_read).collect()
}

/// Whether the name is that of a file of a model or of a recorded run.
fn is_model_or_run(path: &Path) -> bool {
    const NAMES: [&str; 12] = [
        "added_tokens.json",
        "config.json",
        "engine.yaml",
        "generation_config.json",
        "merges.txt",
        "model.safetensors.index.json",
        "requests.csv",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    ];
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_layer_times = name.ends_with(".csv") && name.contains("_tp");
    NAMES.contains(&name) || is_layer_times || has_ending(path, &["gguf", "jinja", "model", "safetensors"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_inputs_name_is_an_input_by_every_name_that_it_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("model")).expect("a folder");
        for (name, text) in [
            ("s.yaml", "{machine: parts.yaml, model: model, workload: {trace: t.csv}}"),
            ("parts.yaml", "parts: {cpu: inner.yaml}"),
            ("inner.yaml", "cpu: mine"),
            ("t.csv", "s.yaml"),
            ("model/config.json", "{}"),
            ("model/plan.yaml", ""),
            ("other.yaml", ""),
        ] {
            fs::write(at(name), text).expect("written");
        }
        fs::hard_link(at("inner.yaml"), at("hard.yaml")).expect("a link");
        let mut inputs = InputFiles::default();
        inputs.add_text(&at("s.yaml").display().to_string());
        for name in [
            "s.yaml",
            "parts.yaml",
            "inner.yaml",
            "hard.yaml",
            "t.csv",
            "model/config.json",
            "model/../t.csv",
        ] {
            assert!(inputs.same_as(&at(name)).is_some(), "{name}");
            let error = inputs.refuse([at("other.yaml"), at(name)]).expect_err(name).to_string();
            assert!(error.contains("is the same file"), "{error}");
        }
        for name in ["other.yaml", "absent.yaml", "model", "model/plan.yaml"] {
            assert_eq!(inputs.same_as(&at(name)), None, "{name}");
        }
        let mut inputs = InputFiles::default();
        inputs.add_text(&format!("{{cpu: {}}}", at("parts.yaml").display()));
        assert!(inputs.same_as(&at("inner.yaml")).is_some());
    }
}
