//! Answers that are kept, each under a digest of everything that it depends on.
//!
//! The cache is one file to which lines are added, so that any number of sweeps and shards may use
//! it at once. A line is a key, a checksum and the answer with blanks between them. It is written
//! in one call and begins with a line end, so that a line in which somebody was killed spoils no
//! other; a line whose checksum is wrong is passed over.

use super::row::{PointAnswer, PointStatus};
use crate::error::{ErrorContext, OrError, Result};
use crate::journal::checksum;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The name of the file in its folder.
const FILE: &str = "answers";

/// Answers by the digests of their inputs.
pub(crate) struct AnswerCache {
    path: PathBuf,
    known: HashMap<String, String>,
    file: Mutex<File>,
}

impl AnswerCache {
    /// The cache in `folder`, which is made where it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made, read or written to.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let cache = Self::read(folder).or_failed();
        cache.within(|| format!("--cache {} cannot be used", folder.display()))
    }

    fn read(folder: &Path) -> io::Result<Self> {
        let path = Self::file(folder);
        std::fs::create_dir_all(folder)?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        let mut known = HashMap::new();
        for line in BufReader::new(&file).split(b'\n') {
            let line = line?;
            if let Some((key, answer)) = std::str::from_utf8(&line).ok().and_then(key_and_answer) {
                known.insert(key.to_owned(), answer.to_owned());
            }
        }
        Ok(Self { path, known, file: Mutex::new(file) })
    }

    /// The cache's file in `folder`.
    pub(crate) fn file(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// The answer that is kept under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<PointAnswer> {
        let (status, cells) = self.known.get(key)?.split_once(' ')?;
        let status = PointStatus::ALL.into_iter().find(|known| known.name() == status)?;
        Some(PointAnswer { status, cells: cells.to_owned() })
    }

    /// Keeps `answer` under `key`, unless it says that something went wrong.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn put(&self, key: &str, answer: &PointAnswer) -> Result<()> {
        if !matches!(answer.status, PointStatus::Ok | PointStatus::Infeasible) {
            return Ok(());
        }
        let text = format!("{} {}", answer.status.name(), answer.cells);
        let line = format!("\n{key} {} {text}\n", checksum(&format!("{key} {text}")));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(line.as_bytes()).or_failed();
        let path = self.path.display();
        written.within(|| format!("{path} cannot be written: the rows that are there are safe"))
    }
}

/// The key and the answer of a line; `None` where it is not whole.
fn key_and_answer(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(' ')?;
    let (sum, answer) = rest.split_once(' ')?;
    (sum == checksum(&format!("{key} {answer}"))).then_some((key, answer))
}
