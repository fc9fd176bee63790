//! A model as sublayers and operators, and the work of each.

pub(crate) mod formats;
pub(crate) mod layer;
pub(crate) mod operator;
pub(crate) mod parameters;
pub(crate) mod sublayer;
pub(crate) mod tensor_parallel;
pub(crate) mod work;
