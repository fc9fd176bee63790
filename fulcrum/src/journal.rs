//! Lines in the order in which they are finished, so that nothing that stops a long task loses any.
//!
//! A journal lies beside the file that it is for. Its first line says which task it is of; each
//! further line is a place, a blank and a text. In front of each line is a checksum: a line that
//! was not finished, or that a disk has changed, is none. A journal is locked while a process uses
//! it, and the last line `by` says which process that was.

use crate::error::{Error, ErrorContext, OrError, Result};
use hwprofiles::{hexadecimal, is_stream};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What a journal is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalTask<'t> {
    /// What is done, like `sweep`.
    pub(crate) name: &'static str,
    /// What makes it another one, for messages.
    pub(crate) differs_in: &'static str,
    /// What it is: anything that its lines depend on makes it another.
    pub(crate) identity: &'t str,
    /// How many lines it has in the end.
    pub(crate) places: u64,
    /// Whether to go on where an earlier process was stopped.
    pub(crate) resume: bool,
}

/// The journal of a task.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    /// By place: where the line's checksum begins, and the bytes after it; `None` where it is not
    /// finished.
    lines: Vec<Option<(u64, u32)>>,
    /// Whole lines that were no lines of this task any more.
    damaged: u64,
}

impl Journal {
    /// The journal beside `out`, with the lines that an earlier process has finished.
    ///
    /// # Errors
    /// Another process uses it, it is of another task, or one that must not be resumed, or the path
    /// cannot be written.
    pub(crate) fn open(out: &Path, task: JournalTask<'_>) -> Result<Self> {
        if out.is_dir() {
            let message = format!("-o {}: it is a folder, and a file is wanted", out.display());
            return Err(Error::input(message));
        }
        if is_stream(out) {
            let message = "what is written there cannot be kept, and a file is wanted";
            return Err(Error::input(format!("-o {}: {message}", out.display())));
        }
        let mut name = OsString::from(out);
        name.push(".journal");
        let path = PathBuf::from(name);
        let shown = path.display().to_string();
        let file = lock(&path).within(|| shown.clone())?;
        let is_new = file.metadata().or_failed().within(|| shown.clone())?.len() == 0;
        if !is_new && !task.resume {
            return Err(Error::input(format!(
                "{shown} is of a {} that did not end: --resume goes on with it, or remove it to begin anew",
                task.name
            )));
        }
        let mut journal = Self { path, file, end: 0, lines: vec![None; task.places as usize], damaged: 0 };
        if !journal.read(&format!("{} {}", task.name, task.identity))? {
            return Err(Error::input(format!(
                "{shown} is of another {} ({}): remove it to begin anew",
                task.name, task.differs_in
            )));
        }
        journal.append(&holder())?;
        Ok(journal)
    }

    /// Which lines are finished, by place.
    pub(crate) fn finished(&self) -> Vec<bool> {
        self.lines.iter().map(Option::is_some).collect()
    }

    /// Lines that an earlier process had finished and that have changed since.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// The journal's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the lines that are there, or begins a journal; `false` where it is of another task.
    fn read(&mut self, title: &str) -> Result<bool> {
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        let mut end = 0;
        loop {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line).or_failed()? as u64;
            if line.pop() != Some(b'\n') {
                break;
            }
            let text = checked(&line);
            if end == 0 && text != Some(title) {
                return Ok(false);
            }
            let place = text.and_then(|text| text.split_once(' ')?.0.parse::<usize>().ok());
            match (text, place.and_then(|place| self.lines.get_mut(place))) {
                (Some(text), Some(line)) => *line = Some((end, text.len() as u32)),
                (Some(_), None) => {}
                (None, _) => self.damaged += 1,
            }
            end += bytes;
        }
        drop(reader);
        // A line that was not finished is written again.
        self.cut_to(end).or_failed()?;
        self.end = end;
        if end == 0 {
            self.append(title)?;
        }
        Ok(true)
    }

    /// Makes the file end, and the next line begin, at `end`.
    fn cut_to(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end)).map(drop)
    }

    fn append(&mut self, text: &str) -> Result<()> {
        let line = format!("{} {text}\n", checksum(text));
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // The part of the line for which there was room is no line, and none may follow it.
            let _ = self.cut_to(self.end);
            let message = "cannot be written: what is there is safe, --resume goes on behind it";
            return Err(Error::failed(error).within(&format!("{} {message}", self.path.display())));
        }
        self.end += line.len() as u64;
        Ok(())
    }

    /// Adds the text of `place`, which is one line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&mut self, place: u64, text: &str) -> Result<()> {
        let (start, text) = (self.end, format!("{place} {text}"));
        self.append(&text)?;
        self.lines[place as usize] = Some((start, text.len() as u32));
        Ok(())
    }

    /// The text at `place`.
    ///
    /// # Errors
    /// It is not finished, has changed since it was written, or the file cannot be read.
    pub(crate) fn text(&mut self, place: usize) -> Result<String> {
        let wrong = |what: &str| Error::failed(format!("{}: line {place} {what}", self.path.display()));
        let (start, bytes) = self.lines[place].ok_or_else(|| wrong("is not there"))?;
        let mut line = vec![0; CHECKSUM + 1 + bytes as usize];
        self.file.seek(SeekFrom::Start(start)).or_failed()?;
        self.file.read_exact(&mut line).or_failed()?;
        // The next line is added at the end.
        self.file.seek(SeekFrom::Start(self.end)).or_failed()?;
        let text = checked(&line).and_then(|text| text.split_once(' '));
        match text.filter(|(number, _)| *number == place.to_string()) {
            Some((_, text)) => Ok(text.to_owned()),
            None => Err(wrong("has changed since it was written: --resume makes it again")),
        }
    }

    /// Removes the journal, whose lines are in their file now.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).or_failed().within(|| self.path.display().to_string())
    }
}

/// Hexadecimal digits of a checksum.
const CHECKSUM: usize = 8;

/// The first digits of a text's SHA-256.
pub(crate) fn checksum(text: &str) -> String {
    hexadecimal(&Sha256::digest(text)[..CHECKSUM / 2])
}

/// The text of a line, if it has its checksum.
fn checked(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    (sum == checksum(text)).then_some(text)
}

/// The journal at `path`, locked until the file is closed.
fn lock(path: &Path) -> Result<File> {
    loop {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.or_failed().within(|| "cannot be written".to_owned())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let by = last_holder(&file).unwrap_or_else(|| "another process".to_owned());
                let message = "is at work on it: wait for its end, or give this one another -o";
                return Err(Error::failed(format!("{by} {message}")));
            }
            // Some file systems know no locks. Their users must take care themselves.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error).or_failed(),
        }
        // Whoever held it may have ended and removed it since it was opened here.
        if is_at(&file, path) {
            return Ok(file);
        }
    }
}

/// Whether `path` still leads to `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(file), Ok(path)) => (file.dev(), file.ino()) == (path.dev(), path.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

const BY: &str = "by ";

/// The line that says which process uses the journal.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.split_whitespace().next().map_or_else(String::new, |host| format!(" on {host}"));
    format!("{BY}process {}{host}", std::process::id())
}

/// The process that the last line `by` names.
fn last_holder(file: &File) -> Option<String> {
    let lines = BufReader::new(file).split(b'\n').map_while(io::Result::ok);
    lines.filter_map(|line| Some(checked(&line)?.strip_prefix(BY)?.to_owned())).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(identity: &str, resume: bool) -> JournalTask<'_> {
        JournalTask { name: "task", differs_in: "other numbers", identity, places: 3, resume }
    }

    fn reason(opened: Result<Journal>) -> String {
        opened.err().expect("it is refused").to_string()
    }

    #[test]
    fn lines_are_there_again_and_only_whole_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let mut journal = Journal::open(&out, task("one", false)).expect("new");
        journal.add(2, "two").expect("added");
        journal.add(0, "none, \"quoted\"").expect("added");
        let path = journal.path().to_owned();
        drop(journal);
        assert!(reason(Journal::open(&out, task("one", false))).contains("--resume"));
        assert!(reason(Journal::open(&out, task("other", true))).contains("another task (other numbers)"));
        let whole = std::fs::read(&path).expect("a journal");
        std::fs::write(&path, [&whole[..], b"0123"].concat()).expect("written");
        let mut journal = Journal::open(&out, task("one", true)).expect("resumed");
        assert_eq!((journal.finished(), journal.damaged()), (vec![true, false, true], 0));
        assert_eq!(journal.text(0).expect("whole"), "none, \"quoted\"");
        assert!(journal.text(1).expect_err("not there").to_string().contains("not there"));
        journal.add(1, "one").expect("added");
        assert_eq!(journal.text(1).expect("whole"), "one");
        journal.remove().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn no_changed_bit_is_read_as_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let mut journal = Journal::open(&out, task("one", false)).expect("new");
        let texts = ["first, 1.5", "second, 2.5", "third, 3.5"];
        texts.iter().zip(0..).for_each(|(text, place)| journal.add(place, text).expect("added"));
        let path = journal.path().to_owned();
        drop(journal);
        let whole = std::fs::read(&path).expect("a journal");
        for bit in 0..8 * whole.len() {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, changed).expect("written");
            // In the first line it makes the journal another's.
            let Ok(mut journal) = Journal::open(&out, task("one", true)) else { continue };
            for (place, text) in texts.iter().enumerate() {
                assert!(journal.text(place).map_or(true, |found| found == *text), "bit {bit}");
            }
            let lost = journal.finished().iter().filter(|finished| !**finished).count();
            assert!(lost <= 2, "bit {bit} loses {lost} lines");
        }
    }

    #[test]
    fn a_line_that_changes_while_it_is_open_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let mut journal = Journal::open(&out, task("one", false)).expect("new");
        journal.add(0, "first").expect("added");
        let text = std::fs::read_to_string(journal.path()).expect("a journal");
        std::fs::write(journal.path(), text.replace("first", "worst")).expect("written");
        assert!(journal.text(0).expect_err("changed").to_string().contains("has changed"));
    }

    #[test]
    fn a_second_process_is_told_who_holds_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let held = Journal::open(&out, task("one", false)).expect("new");
        for resume in [false, true] {
            let message = reason(Journal::open(&out, task("one", resume)));
            assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        }
        drop(held);
        Journal::open(&out, task("one", true)).expect("nobody holds it now");
    }
}
