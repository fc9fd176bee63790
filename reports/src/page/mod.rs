//! What a page is made of, and the page itself.

pub(crate) mod block;
pub(crate) mod explorer;
pub(crate) mod html;
pub(crate) mod section;
