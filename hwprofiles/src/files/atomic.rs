//! Files that are written completely or not at all.

use std::io::{self, Write};
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

/// Writes `bytes` to `path`. At every moment the path holds either what it held before or all of
/// `bytes`: they go to a temporary file in the same folder, which then takes the path's name.
/// Missing folders are made.
///
/// A path that exists and is not a regular file (`/dev/stdout`, a pipe) is written to directly: it
/// cannot be replaced. `-` is standard output. A file that is replaced keeps its mode.
pub fn write_atomically(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), WriteError> {
    let path = path.as_ref();
    let mut file = AtomicFile::create(path)?;
    let written = file.write_all(bytes.as_ref());
    written.map_err(|source| WriteError { path: path.to_owned(), source })?;
    file.publish()
}

/// The name of standard output.
const STDOUT: &str = "-";

/// Whether what is written to `path` goes on at once, to standard output, a pipe or a device, so
/// that nothing is kept there.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new(STDOUT) || path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// A file that is written part by part, with the guarantees of [`write_atomically`]: it is
/// invisible before [`AtomicFile::publish`], and a file that is dropped before that leaves nothing
/// behind.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    target: Target,
}

impl AtomicFile {
    /// Begins a file that will be at `path`.
    ///
    /// # Errors
    /// The path names no file, its folder cannot be made or written to, or the platform has no
    /// files.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, WriteError> {
        let path = path.as_ref().to_owned();
        match Target::open(&path) {
            Ok(target) => Ok(Self { path, target }),
            Err(source) => Err(WriteError { path, source }),
        }
    }

    /// Puts what was written at the path.
    ///
    /// # Errors
    /// The bytes cannot be stored, or the path cannot be replaced. Then it keeps what it held
    /// before.
    pub fn publish(self) -> Result<(), WriteError> {
        let Self { path, target } = self;
        target.publish().map_err(|source| WriteError { path, source })
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.target.writer().write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.target.writer().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.writer().flush()
    }
}

#[cfg(not(target_family = "wasm"))]
use on_disk::Target;

/// Files on a disk.
#[cfg(not(target_family = "wasm"))]
mod on_disk {
    use super::{STDOUT, is_stream};
    use std::fs::{self, File, OpenOptions};
    use std::io::{self, BufWriter, Stdout, Write};
    use std::path::{Path, PathBuf};
    use std::time::Duration;
    use tempfile::NamedTempFile;

    /// Bytes that are collected before they are handed to the operating system.
    const BUFFER: usize = 1 << 16;

    /// Where the bytes go until they are published.
    #[derive(Debug)]
    pub(super) enum Target {
        /// To standard output.
        Stdout(Stdout),
        /// To a device or pipe, which cannot be replaced.
        Direct(BufWriter<File>),
        /// To a temporary file in the folder of the path that it will replace.
        Replacing(BufWriter<NamedTempFile>, PathBuf),
    }

    impl Target {
        pub fn open(path: &Path) -> io::Result<Self> {
            if path == Path::new(STDOUT) {
                return Ok(Self::Stdout(io::stdout()));
            }
            if is_stream(path) {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Self::Direct(BufWriter::with_capacity(BUFFER, file)));
            }
            let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
            // A link is followed, so that its target is replaced and not the link.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            fs::create_dir_all(folder(&path))?;
            let prefix = format!(".{}.", name.to_string_lossy());
            remove_leftovers(folder(&path), &prefix);
            let mut builder = tempfile::Builder::new();
            builder.prefix(&prefix).suffix(SUFFIX);
            // The permissions of any new file. A temporary file is private by default.
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let file = builder.tempfile_in(folder(&path))?;
            // A lock tells a draft that is written from one that a killed process has left. Where
            // there are no locks, drafts are not removed.
            let _ = file.as_file().try_lock();
            if let Ok(replaced) = fs::metadata(&path) {
                file.as_file().set_permissions(replaced.permissions())?;
            }
            Ok(Self::Replacing(BufWriter::with_capacity(BUFFER, file), path))
        }

        pub fn writer(&mut self) -> &mut dyn Write {
            match self {
                Self::Stdout(stdout) => stdout,
                Self::Direct(file) => file,
                Self::Replacing(file, _) => file,
            }
        }

        pub fn publish(self) -> io::Result<()> {
            match self {
                Self::Stdout(mut stdout) => stdout.flush(),
                Self::Direct(mut file) => file.flush(),
                Self::Replacing(file, path) => {
                    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.as_file().sync_all()?;
                    file.persist(&path).map_err(|error| error.error)?;
                    sync_folder(folder(&path))
                }
            }
        }
    }

    /// What the names of drafts end in.
    const SUFFIX: &str = ".tmp";

    /// A draft that is younger may belong to a process that has not locked it yet.
    const ABANDONED_AFTER: Duration = Duration::from_secs(60);

    /// Removes the drafts of a file that killed processes have left. It is no failure if that
    /// cannot be done: they only take room.
    fn remove_leftovers(folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_draft =
                name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(SUFFIX));
            let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
            if is_draft
                && age().is_some_and(|age| age > ABANDONED_AFTER)
                && let Ok(file) = File::open(entry.path())
                && file.try_lock().is_ok()
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The folder that holds `path`.
    fn folder(path: &Path) -> &Path {
        path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Stores the folder's new entry, so that the new name survives a loss of power.
    fn sync_folder(folder: &Path) -> io::Result<()> {
        // Windows opens no folders as files.
        if !cfg!(unix) {
            return Ok(());
        }
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            // Some file systems do not sync folders, and a folder that may be written to may still
            // not be read.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput
                        | io::ErrorKind::Unsupported
                        | io::ErrorKind::PermissionDenied
                ) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

/// A platform without files: nothing can be created.
#[cfg(target_family = "wasm")]
#[derive(Debug)]
enum Target {}

#[cfg(target_family = "wasm")]
impl Target {
    fn open(_path: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "WebAssembly has no files to write to"))
    }

    fn writer(&mut self) -> &mut dyn Write {
        match *self {}
    }

    fn publish(self) -> io::Result<()> {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
    fn a_file_that_is_replaced_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        fs::write(&path, "old").unwrap();
        for mode in [0o600, 0o640, 0o664] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            write_atomically(&path, "new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn drafts_that_a_killed_process_has_left_are_removed_and_those_of_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.yaml");
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        let leave = |name: &str, age| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(age).unwrap();
            file
        };
        leave(".plan.yaml.abc.tmp", old);
        leave(".other.yaml.abc.tmp", old);
        leave(".plan.yaml.new.tmp", std::time::SystemTime::now());
        let held = leave(".plan.yaml.held.tmp", old);
        held.try_lock().unwrap();
        write_atomically(&path, "text").unwrap();
        let left = [".other.yaml.abc.tmp", ".plan.yaml.held.tmp", ".plan.yaml.new.tmp", "plan.yaml"];
        assert_eq!(names(folder.path()), left);
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
