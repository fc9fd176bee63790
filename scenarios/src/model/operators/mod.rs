//! A model as sublayers and operators, and the work of each.

pub(crate) mod activation_buffer;
pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod formats;
pub(crate) mod layer;
pub(crate) mod operator;
pub(crate) mod parameters;
pub(crate) mod products;
pub(crate) mod step;
pub(crate) mod sublayer;
pub(crate) mod tensor_parallel;
pub(crate) mod tensors;
pub(crate) mod work;
