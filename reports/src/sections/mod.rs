//! Sections: what the page shows for each kind of result.

pub(crate) mod capacity;
pub(crate) mod front;
pub(crate) mod grid;
pub(crate) mod plan;
pub(crate) mod roofline;
pub(crate) mod run;
pub(crate) mod serving;
pub(crate) mod sweep;
pub(crate) mod trace;
pub(crate) mod validation;
