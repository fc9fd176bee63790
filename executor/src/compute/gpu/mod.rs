//! Operators and transfers as kernels on a GPU.

mod experts;
mod mixture;
mod recurrent;
pub(crate) mod transfer;
pub(crate) mod worker;
