//! The part of a page that one result gets.

use crate::page::block::PageBlock;

/// The part of a page that one result gets.
#[derive(Debug, Clone)]
pub(crate) struct PageSection {
    /// Says what it is, with the names of the machine and the model.
    pub title: String,
    /// The sentence below the title.
    pub lead: String,
    /// The rest, in order.
    pub blocks: Vec<PageBlock>,
}
