//! The roofline: six kernels across arithmetic intensity, predicted from a machine's file and
//! measured.

pub(crate) mod check;
mod gradients;
mod prediction;
mod product;
mod sparse;
mod stencil;
mod subject;
mod vectors;
mod work;
