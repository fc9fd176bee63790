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

/// Names whose first letters and digits agree in this number are alike.
const ALIKE: usize = 3;

/// The shipped names that begin like `name`, if there are any.
pub(crate) fn similar(name: &str) -> Option<String> {
    let plain = |name: &str| {
        let letters = name.chars().filter(|c| c.is_ascii_alphanumeric());
        letters.take(ALIKE).collect::<String>().to_ascii_lowercase()
    };
    let wanted = plain(name);
    let names: Vec<_> =
        shipped().map(|(shipped, _)| shipped).filter(|other| plain(other) == wanted).collect();
    (wanted.len() == ALIKE && !names.is_empty()).then(|| format!("shipped: {}", names.join(", ")))
}
