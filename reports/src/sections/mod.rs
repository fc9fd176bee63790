//! What the page says of each kind of result.

pub(crate) mod capacity;
pub(crate) mod front;
pub(crate) mod grid;
pub(crate) mod plan;
pub(crate) mod serving;
pub(crate) mod sweep;
pub(crate) mod trace;
pub(crate) mod validation;

use crate::block::Block;

/// What the page says of one result.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// What it is, with the names of what it is about.
    pub title: String,
    /// The sentence below that.
    pub lead: String,
    /// The rest, in order.
    pub blocks: Vec<Block>,
}

/// `3 points`, `1 point`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
