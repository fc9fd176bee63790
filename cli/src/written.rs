//! The files that a command writes: none of them is one that it reads, or another that it writes.

use clap::{Arg, ArgMatches, Command, ValueHint};
use fulcrum::{Error, InputFiles, Result};
use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The mark of an argument that names a file to write.
pub const WRITTEN_FILE: ValueHint = ValueHint::FilePath;

/// The mark of an argument that names a folder to write to.
pub const WRITTEN_FOLDER: ValueHint = ValueHint::DirPath;

/// The mark of an argument that names a file to read, which may be the one that is written: rows
/// come back with columns added.
pub const READ_IN_PLACE: ValueHint = ValueHint::Other;

/// What ends the names of files that are kept beside a file to write.
const BESIDE: [&str; 4] = ["", ".journal", ".partial", ".stamp"];

/// The files that this command reads, for those that choose the names of files in a folder.
static INPUTS: OnceLock<InputFiles> = OnceLock::new();

/// Refuses a file to write whose name has another ending than `endings`. A name without one is
/// allowed.
///
/// # Errors
/// The endings that are wanted.
pub fn check_ending(path: &Path, endings: &[&str]) -> Result<()> {
    let Some(ending) = path.extension() else { return Ok(()) };
    let ending = format!(".{}", ending.to_string_lossy().to_ascii_lowercase());
    match endings.contains(&&*ending) {
        true => Ok(()),
        false => Err(Error::input(format!(
            "-o {}: a name that ends in {} is wanted",
            path.display(),
            endings.join(" or ")
        ))),
    }
}

/// Refuses files to write that the command reads.
///
/// # Errors
/// Which file it is.
pub fn refuse_inputs(written: impl IntoIterator<Item = PathBuf>) -> Result {
    INPUTS.get().map_or(Ok(()), |inputs| inputs.refuse(written))
}

/// Whether one of the files that are written is standard output.
///
/// # Errors
/// A file would be written that is read, or written twice.
pub fn check(command: &Command, matches: &ArgMatches) -> Result<bool> {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, within)) = matches.subcommand() {
        let Some(subcommand) = command.find_subcommand(name) else { break };
        (command, matches) = (subcommand, within);
    }
    let (written, others): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .partition(|arg| [WRITTEN_FILE, WRITTEN_FOLDER].contains(&arg.get_value_hint()));
    let written: Vec<_> = written
        .into_iter()
        .flat_map(|arg| values(arg, matches).map(|value| (typed(arg), PathBuf::from(value))))
        .collect();
    if written.is_empty() {
        return Ok(false);
    }
    let inputs = INPUTS.get_or_init(|| inputs(command.get_name(), &others, matches));
    for (at, (argument, path)) in written.iter().enumerate() {
        let beside = BESIDE.map(|end| PathBuf::from([path.as_os_str(), end.as_ref()].join("".as_ref())));
        let read = beside.iter().find_map(|path| inputs.same_as(path));
        let place = place(path);
        let twice = written[..at].iter().find(|(_, other)| place.is_some() && self::place(other) == place);
        let same = match (read, twice) {
            (Some(input), _) => format!("{} is the same file, which is read", input.display()),
            (None, Some((other, _))) => format!("{other} is the same file, which is written"),
            (None, None) => continue,
        };
        return Err(Error::input(format!("{argument} {}: {same}: give it another name", path.display())));
    }
    Ok(written.iter().any(|(_, path)| [Path::new("-"), Path::new("/dev/stdout")].contains(&&**path)))
}

/// The files that the command called `name` reads.
fn inputs(name: &str, arguments: &[&Arg], matches: &ArgMatches) -> InputFiles {
    let mut inputs = InputFiles::default();
    // `fulcrum bench` measures this machine anew, unless it checks what was measured.
    if name != "bench" || matches.try_contains_id("check").unwrap_or(false) {
        inputs.add_text("this");
    }
    let read = arguments.iter().filter(|arg| arg.get_value_hint() != READ_IN_PLACE);
    for (arg, value) in read.flat_map(|arg| values(arg, matches).map(move |value| (arg, value))) {
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        inputs.add_argument(&value, is_path);
        if name == "reproduce" {
            // A published system's rows are beside it.
            inputs.add_path(&Path::new(&value).with_extension("csv"));
        }
    }
    inputs
}

fn values(arg: &Arg, matches: &ArgMatches) -> impl Iterator<Item = OsString> {
    let values = matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten();
    values.map(OsString::from).collect::<Vec<_>>().into_iter()
}

/// An argument as it is typed: `--trace` or `SCENARIO`.
fn typed(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_value_names()) {
        _ if arg.get_id() == "out" => "-o".to_owned(),
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => name.to_string(),
        (None, _) => arg.get_id().as_str().to_uppercase(),
    }
}

/// Where a path to write leads. A folder, a device or a pipe may be named twice.
fn place(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(found) => found.is_file().then_some(found),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
        }
    }
}
