//! The files that a command writes: none of them is one that it reads, or another that it writes.

use clap::{ArgMatches, Command, ValueHint};
use fulcrum::{Error, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The mark of an argument that names a file to write.
pub const WRITTEN_FILE: ValueHint = ValueHint::FilePath;

/// The mark of an argument that names a folder to write to.
pub const WRITTEN_FOLDER: ValueHint = ValueHint::DirPath;

/// The mark of an argument that names a file to write, which may be the one that is read: rows come
/// back with columns added.
pub const WRITTEN_IN_PLACE: ValueHint = ValueHint::Other;

/// A path among the arguments.
struct NamedPath {
    /// The argument as it is typed: `--trace` or `SCENARIO`.
    argument: String,
    typed: PathBuf,
    /// Where it leads, if something is there or could be.
    place: Option<PathBuf>,
    is_written: bool,
    may_be_read: bool,
}

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
    let paths: Vec<_> = command.get_arguments().flat_map(|arg| named_paths(arg, matches)).collect();
    for (at, written) in paths.iter().enumerate().filter(|(_, path)| path.is_written) {
        let same = |(other_at, other): &(usize, &NamedPath)| {
            *other_at != at
                && other.place.is_some()
                && other.place == written.place
                && (other.is_written || !written.may_be_read)
        };
        if let Some((_, other)) = paths.iter().enumerate().find(same) {
            let verb = if other.is_written { "written" } else { "read" };
            return Err(Error::input(format!(
                "{} {}: {} is the same file, which is {verb}: give it another name",
                written.argument,
                written.typed.display(),
                other.argument
            )));
        }
    }
    let is_stdout = |path: &NamedPath| {
        path.is_written && [Path::new("-"), Path::new("/dev/stdout")].contains(&&*path.typed)
    };
    Ok(paths.iter().any(is_stdout))
}

fn named_paths(arg: &clap::Arg, matches: &ArgMatches) -> Vec<NamedPath> {
    let may_be_read = arg.get_value_hint() == WRITTEN_IN_PLACE;
    let is_written = may_be_read || [WRITTEN_FILE, WRITTEN_FOLDER].contains(&arg.get_value_hint());
    let argument = match (arg.get_long(), arg.get_value_names()) {
        _ if arg.get_id() == "out" => "-o".to_owned(),
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => name.to_string(),
        (None, _) => arg.get_id().as_str().to_uppercase(),
    };
    let values = matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten();
    let path = |value: &OsStr| {
        // A setting of the command line may name a file too: machine=mine.yaml.
        let value = value.to_str().and_then(|text| text.rsplit('=').next()).map_or(value, OsStr::new);
        let typed = PathBuf::from(value);
        NamedPath {
            argument: argument.clone(),
            place: place(&typed, is_written),
            typed,
            is_written,
            may_be_read,
        }
    };
    values.map(path).collect()
}

/// Where a path leads. A folder, a device or a pipe may be named twice.
fn place(path: &Path, is_written: bool) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(found) => found.is_file().then_some(found),
        Err(_) if is_written => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
        }
        Err(_) => None,
    }
}
