//! Answers that are kept: what a point came to, under a fingerprint of everything that it depends on.
//!
//! One file to which lines are added, so that any number of sweeps and of shards may use it at once: a key, a checksum, a
//! blank each, and the answer. A line is written at once and begins with a line end, so that one which somebody was killed in
//! spoils no other; a line whose checksum is not its own is none.

use super::row::{Answer, Status};
use crate::exit::{Outcome, Sort};
use anyhow::Context;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The name of the file in its folder.
const FILE: &str = "answers";

/// The answers.
pub struct Cache {
    path: PathBuf,
    known: HashMap<String, String>,
    file: Mutex<File>,
}

impl Cache {
    /// That in `folder`, which is made where it is not there.
    ///
    /// # Errors
    /// A folder that cannot be made, read or written to.
    pub fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join(FILE);
        let open = || -> anyhow::Result<Self> {
            std::fs::create_dir_all(folder)?;
            let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
            let mut known = HashMap::new();
            for line in BufReader::new(&file).split(b'\n') {
                let line = line?;
                if let Some((key, answer)) = std::str::from_utf8(&line).ok().and_then(read) {
                    known.insert(key.to_owned(), answer.to_owned());
                }
            }
            Ok(Self { path: path.clone(), known, file: Mutex::new(file) })
        };
        open().with_context(|| format!("--cache {} cannot be used", folder.display())).or_failed()
    }

    /// What is kept under `key`.
    pub fn get(&self, key: &str) -> Option<Answer> {
        let (status, tail) = self.known.get(key)?.split_once(' ')?;
        let status = Status::ALL.into_iter().find(|known| known.name() == status)?;
        Some(Answer { status, tail: tail.to_owned() })
    }

    /// Keeps `answer` under `key`; what says that something went wrong is not kept.
    pub fn put(&self, key: &str, answer: &Answer) -> anyhow::Result<()> {
        if !matches!(answer.status, Status::Ok | Status::Infeasible) {
            return Ok(());
        }
        let text = format!("{} {}", answer.status.name(), answer.tail);
        let line = format!("\n{key} {} {text}\n", checksum(key, &text));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).with_context(|| {
            format!("{} cannot be written: the rows that are there are safe", self.path.display())
        })
    }
}

/// The key and the answer of a line; `None` where it is not whole.
fn read(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(' ')?;
    let (sum, answer) = rest.split_once(' ')?;
    (sum == checksum(key, answer)).then_some((key, answer))
}

fn checksum(key: &str, answer: &str) -> String {
    let digest = Sha256::new().chain_update(key).chain_update(" ").chain_update(answer).finalize();
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
