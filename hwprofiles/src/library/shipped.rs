//! The profiles that come with Fulcrum.

use crate::files::{FileError, plain_name};
use crate::library::profile::Profile;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

/// Name and text of every file below `data/`, by folder and name.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Name and text of every shipped profile. A profile's name is that of its file.
pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.iter().copied()
}

/// The profile of the shipped file called `name`, exactly. A file has up to 100 KB, and what words
/// mean is looked up in dozens of them, so each is read once.
pub(crate) fn shipped_profile(name: &str) -> Option<Result<&'static Profile, FileError>> {
    static PROFILES: [OnceLock<Result<Profile, FileError>>; SHIPPED.len()] =
        [const { OnceLock::new() }; SHIPPED.len()];
    let at = *BY_NAME.get(name)?;
    let (name, text) = SHIPPED[at];
    Some(PROFILES[at].get_or_init(|| Profile::from_yaml(text, name)).as_ref().map_err(Clone::clone))
}

/// The places of the profiles in [`SHIPPED`].
static BY_NAME: LazyLock<HashMap<&str, usize>> =
    LazyLock::new(|| shipped().enumerate().map(|(at, (name, _))| (name, at)).collect());

/// The shipped profile called `name`, in any spelling of its letters and dashes.
pub(crate) fn shipped_as(name: &str) -> Option<(&'static str, &'static str)> {
    BY_NAME.get(plain_name(name).as_str()).map(|at| SHIPPED[*at])
}
