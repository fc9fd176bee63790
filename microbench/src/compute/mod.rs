//! Experiments on arithmetic: products, attention, element-wise work, ceilings and the clock.

pub(crate) mod attention;
pub(crate) mod ceilings;
pub(crate) mod elementwise;
pub(crate) mod frequency;
pub(crate) mod gemm;
