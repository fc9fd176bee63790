//! Pages: their content as blocks and sections, and their HTML.

pub(crate) mod block;
pub(crate) mod explorer;
pub(crate) mod html;
pub(crate) mod section;
