//! What a model needs to read prompts and to write answers.

pub(crate) mod chat_template;
pub(crate) mod served_model;
