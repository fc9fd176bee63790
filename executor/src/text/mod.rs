//! Text to tokens and back.

mod gguf_tokenizer;
pub(crate) mod tokenizer;
