//! What a model needs to read prompts and to write answers.

pub(crate) mod chat_template;
pub(crate) mod served_model;
pub(crate) mod template_engine;
pub(crate) mod template_process;
