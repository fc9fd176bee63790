//! What each group of families adds to the sizes.

pub(crate) mod compressed;
pub(crate) mod decoder;
pub(crate) mod gated_delta;
pub(crate) mod gemma;
pub(crate) mod gpt;
pub(crate) mod kimi_delta;
pub(crate) mod latent;
pub(crate) mod layered_gemma;
pub(crate) mod llama;
pub(crate) mod llama4;
pub(crate) mod mamba;
pub(crate) mod mimo;
pub(crate) mod minimax_m3;
pub(crate) mod one_sublayer;
pub(crate) mod short_convolution;
