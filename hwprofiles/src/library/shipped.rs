//! The profiles that come with Fulcrum.

use crate::files::plain_name;

/// Name and text of every file below `data/`, by folder and name.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Name and text of every shipped profile. A profile's name is that of its file.
pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.iter().copied()
}

/// The shipped profile called `name`, in any spelling.
pub(crate) fn shipped_as(name: &str) -> Option<(&'static str, &'static str)> {
    let plain = plain_name(name);
    shipped().find(|(shipped, _)| *shipped == plain)
}
