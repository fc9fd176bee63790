//! A section: the part of a page that shows one result.

use crate::page::block::PageBlock;

/// The part of a page that shows one result.
#[derive(Debug, Clone)]
pub(crate) struct PageSection {
    /// The title, with the names of the machine and the model.
    pub title: String,
    /// The sentence below the title.
    pub lead: String,
    /// The content, in order.
    pub blocks: Vec<PageBlock>,
}
