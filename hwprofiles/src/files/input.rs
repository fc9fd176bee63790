//! Files that are read: regular files and standard input, never a device that has no end.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most bytes of a document that is read as a whole.
const MOST_BYTES: u64 = 1 << 30;

/// The system's name of standard input.
const STDIN: &str = "/dev/stdin";

/// Whether `path` is standard input: `-`, or the name that the system gives it.
pub fn is_stdin(path: &Path) -> bool {
    ["-", STDIN, "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Whether `path` is standard input or another file that this process was started with.
pub fn is_open_already(path: &Path) -> bool {
    is_stdin(path) || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
}

/// What was read of a pipe before somebody opened it.
#[derive(Clone)]
struct ReadAhead {
    bytes: Vec<u8>,
    /// Whether that is all.
    ended: bool,
}

static PIPES_AHEAD: Mutex<BTreeMap<PathBuf, ReadAhead>> = Mutex::new(BTreeMap::new());

fn pipes_ahead() -> MutexGuard<'static, BTreeMap<PathBuf, ReadAhead>> {
    PIPES_AHEAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one name of standard input, whichever of its names `path` is; another path itself.
fn one_name(path: &Path) -> &Path {
    if is_stdin(path) { Path::new(STDIN) } else { path }
}

/// The text of a file, or of a pipe that this process was started with, where it has at most `most`
/// bytes: for those who must know what it names before a command begins. Whoever opens the pipe
/// later reads it from its beginning.
///
/// # Errors
/// Those of [`open_input`]; it cannot be read.
pub fn read_ahead(path: &Path, most: u64) -> io::Result<Option<String>> {
    let mut pipes = pipes_ahead();
    let ahead = match pipes.remove(one_name(path)) {
        Some(ahead) => ahead,
        None => {
            let (file, mut bytes) = (open_found(path)?, Vec::new());
            file.take(most + 1).read_to_end(&mut bytes)?;
            ReadAhead { ended: bytes.len() as u64 <= most, bytes }
        }
    };
    let text = ahead.ended.then(|| String::from_utf8(ahead.bytes.clone()).ok()).flatten();
    // A regular file is opened from its beginning each time.
    if is_open_already(path) && !std::fs::metadata(one_name(path))?.is_file() {
        pipes.insert(one_name(path).to_owned(), ahead);
    }
    Ok(text)
}

/// What was read ahead of a pipe and then the rest of it, through another pipe.
#[cfg(unix)]
fn from_its_beginning(path: &Path, ReadAhead { bytes, ended }: ReadAhead) -> io::Result<File> {
    use std::io::Write;
    let mut rest = (!ended).then(|| File::open(path)).transpose()?;
    let (reader, mut writer) = io::pipe()?;
    // Nobody waits for this thread: a reader that stops early closes the pipe.
    std::thread::spawn(move || -> io::Result<()> {
        writer.write_all(&bytes)?;
        rest.as_mut().map_or(Ok(0), |rest| io::copy(rest, &mut writer)).map(drop)
    });
    Ok(File::from(std::os::fd::OwnedFd::from(reader)))
}

#[cfg(not(unix))]
fn from_its_beginning(path: &Path, _: ReadAhead) -> io::Result<File> {
    File::open(path)
}

/// Opens a file to read it from its beginning. `-` is standard input.
///
/// A device, a socket or a named pipe is refused: it may have no end, or nobody may ever write to
/// it. A pipe that this process was started with (`/dev/stdin`, a shell's `<(…)`) is read.
///
/// # Errors
/// There is no such file, it may not be read, or it is no file.
pub fn open_input(path: &Path) -> io::Result<File> {
    let mut pipes = pipes_ahead();
    match pipes.remove(one_name(path)) {
        Some(ahead) => {
            // What is known to its end can be opened again.
            if ahead.ended {
                pipes.insert(one_name(path).to_owned(), ahead.clone());
            }
            from_its_beginning(one_name(path), ahead)
        }
        None => open_found(path),
    }
}

fn open_found(path: &Path) -> io::Result<File> {
    let path = one_name(path);
    let is_typed = is_stdin(path) && io::stdin().is_terminal();
    match kind(&std::fs::metadata(path)?) {
        FileKind::Folder => {
            Err(io::Error::new(io::ErrorKind::IsADirectory, "a folder, and a file is wanted"))
        }
        FileKind::Other(what) if !(is_typed || is_open_already(path) && what == PIPE) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what}, and a file is wanted")))
        }
        _ => File::open(path),
    }
}

/// The bytes of a file, see [`open_input`].
///
/// # Errors
/// Those of [`open_input`]; the file has more than 1 GiB.
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_input(path)?;
    let mut bytes = Vec::new();
    // A sparse file may claim any length, and a pipe claims none.
    if file.metadata()?.len() <= MOST_BYTES {
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= MOST_BYTES {
            return Ok(bytes);
        }
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 1 GiB, which no document has"))
}

/// The text of a file, see [`open_input`].
///
/// # Errors
/// Those of [`read_input`]; the bytes are not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_input(path)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("no text: byte {at} is not UTF-8"))
    })
}

/// What a path leads to.
#[derive(PartialEq, Eq)]
enum FileKind {
    Regular,
    Folder,
    Other(&'static str),
}

const PIPE: &str = "a pipe";

#[cfg(unix)]
fn kind(found: &Metadata) -> FileKind {
    use std::os::unix::fs::FileTypeExt;
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => FileKind::Folder,
        () if kind.is_fifo() => FileKind::Other(PIPE),
        () if kind.is_socket() => FileKind::Other("a socket"),
        () if kind.is_char_device() || kind.is_block_device() => FileKind::Other("a device"),
        () => FileKind::Regular,
    }
}

#[cfg(not(unix))]
fn kind(found: &Metadata) -> FileKind {
    match () {
        () if found.is_dir() => FileKind::Folder,
        () if found.is_file() => FileKind::Regular,
        () => FileKind::Other("neither a file nor a folder"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused_before_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for (path, words) in [
            (Path::new("/dev/zero"), "a device"),
            (&pipe, "a pipe"),
            (folder.path(), "a folder"),
            (&folder.path().join("absent"), "No such file"),
        ] {
            let error = open_input(path).unwrap_err().to_string();
            assert!(error.contains(words), "{}: {error}", path.display());
        }
    }

    #[test]
    fn a_pipe_that_was_read_ahead_is_opened_from_its_beginning() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let text = "machine: mine.yaml\n".repeat(10_000);
        let [short, long] = [text.len() as u64, 20].map(|most| {
            let (reader, mut writer) = io::pipe().unwrap();
            let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
            let written = text.clone();
            std::thread::spawn(move || writer.write_all(written.as_bytes()).unwrap());
            let ahead = read_ahead(&path, most).unwrap();
            assert_eq!(ahead, (most > 20).then(|| text.clone()));
            assert!(read_text(&path).unwrap() == text, "{most}");
            (reader, path)
        });
        // One that ended within the limit is known, and can be read as often as a file.
        assert!(read_text(&short.1).unwrap() == text);
        assert_eq!(read_text(&long.1).unwrap(), "");
    }

    #[test]
    fn a_text_says_where_it_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, b"ab\xffcd").unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("byte 2 is not UTF-8"));
        assert_eq!(read_input(&path).unwrap(), b"ab\xffcd");
        // A file that claims more than any document has is not read into memory.
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(read_input(&path).unwrap_err().to_string().contains("more than 1 GiB"));
    }
}
