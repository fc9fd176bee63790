//! Files that are whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {source}", path.display())]
pub struct WriteError {
    /// Which file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes `bytes` to `path` so that at every moment the path holds either what it held before or all of `bytes`:
/// they go to a temporary file beside it, which then takes its name. Missing folders are made.
///
/// What exists and is not a regular file (`/dev/stdout`, a pipe) is written to directly: it cannot be replaced.
pub fn write_atomically(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), WriteError> {
    let path = path.as_ref();
    let mut draft = AtomicFile::create(path)?;
    let written = draft.write_all(bytes.as_ref());
    written.map_err(|source| WriteError { path: path.to_owned(), source })?;
    draft.publish()
}

/// A file that is being written, part by part, as [`write_atomically`] does at once: nobody sees it before
/// [`AtomicFile::publish`], and one that is dropped without that leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// The file that has the name until it is published, and the one that it replaces then; none where the path
    /// cannot be replaced.
    renaming: Option<(PathBuf, PathBuf)>,
}

impl AtomicFile {
    /// A draft of `path`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, WriteError> {
        let path = path.as_ref();
        let special = fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir());
        let opened = if special {
            OpenOptions::new().write(true).open(path).map(|file| (file, None))
        } else {
            Self::beside(path)
        };
        let (file, renaming) = opened.map_err(|source| WriteError { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(1 << 16, file), renaming })
    }

    fn beside(path: &Path) -> io::Result<(File, Option<(PathBuf, PathBuf)>)> {
        let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
        // A link is followed, so that its target is replaced and not the link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = target.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let (temporary, file) = create_beside(folder, &name.to_string_lossy())?;
        Ok((file, Some((temporary, target))))
    }

    /// Gives the path what was written.
    pub fn publish(mut self) -> Result<(), WriteError> {
        let published = self.file.flush().and_then(|()| match &self.renaming {
            Some((temporary, target)) => {
                self.file.get_ref().sync_all()?;
                fs::rename(temporary, target)
            }
            None => Ok(()),
        });
        match published {
            Ok(()) => {
                self.renaming = None;
                Ok(())
            }
            Err(source) => Err(WriteError { path: self.path.clone(), source }),
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.renaming {
            // The first error is the one to tell; a temporary file that stays behind is named `.tmp`.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A new file of a name that nobody has; other writers may be at work in the same folder.
fn create_beside(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let mut attempt = 0_u32;
    loop {
        let path = folder.join(format!(".{name}.{}.{attempt}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
            Err(error) => return Err(error),
            Ok(file) => return Ok((path, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_bytes_arrive_and_nothing_else_stays_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/plan.yaml");
        write_atomically(&path, "one").unwrap();
        write_atomically(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(names(path.parent().unwrap()), ["plan.yaml"]);
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there_and_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kept"), "kept").unwrap();
        let error = write_atomically(&path, "bytes").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(names(folder.path()), ["taken"]);
        assert_eq!(fs::read_to_string(path.join("kept")).unwrap(), "kept");
    }

    #[test]
    fn a_draft_that_is_not_published_leaves_what_was_there_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        fs::write(&path, "old").unwrap();
        let mut draft = AtomicFile::create(&path).unwrap();
        draft.write_all(b"new").unwrap();
        drop(draft);
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), names(folder.path())),
            ("old".into(), vec!["rows.csv".into()])
        );
        let mut draft = AtomicFile::create(&path).unwrap();
        draft.write_all(b"ne").unwrap();
        draft.write_all(b"w").unwrap();
        draft.publish().unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), names(folder.path())),
            ("new".into(), vec!["rows.csv".into()])
        );
    }

    #[test]
    fn writers_of_one_file_at_once_leave_the_whole_text_of_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("raced");
        let texts: Vec<String> = ('a'..='h').map(|letter| letter.to_string().repeat(100_000)).collect();
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(move || write_atomically(path, text).unwrap());
            }
        });
        assert!(texts.contains(&fs::read_to_string(path).unwrap()));
        assert_eq!(names(folder.path()), ["raced"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_its_target_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomically(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    }
}
