//! The micro-kernels of products: a few rows of x times a panel of weights, in registers.

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod float8;
pub(crate) mod scales;
