//! The model that is served.

use super::chat_template::ChatTemplate;
use super::template_process::TemplateProgram;
use fulcrum::{Checkpoint, Error, OrError, ResolvedPlan, Result, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// The model that a server answers for.
#[derive(Debug)]
pub struct ServedModel {
    /// Its name in requests and answers.
    pub name: String,
    /// Makes tokens of text, and text of tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// How conversations are written, where the model has a way.
    pub template: Option<ChatTemplate>,
    /// The tokens that end an answer.
    pub ends: Vec<u32>,
    /// The most tokens of a prompt and its answer together.
    pub most_tokens: u64,
    /// Tokens are below this number.
    pub vocab: u64,
    /// Sequences that run at once.
    pub slots: u64,
}

impl ServedModel {
    /// The model of `planned`, whose files are in `folder`. A chat template of the caller's goes
    /// before the model's own, and is rendered by `program` where there is one
    /// ([`ChatTemplate::open`]).
    ///
    /// # Errors
    /// There is no tokenizer, or a file of the model is malformed.
    pub fn new(
        planned: &ResolvedPlan,
        checkpoint: &Checkpoint,
        folder: &Path,
        template: Option<&Path>,
        program: Option<&TemplateProgram>,
    ) -> Result<Self> {
        let extent = planned.plan.extent();
        // A server of tokens alone would answer nobody: clients of this protocol send texts.
        let tokenizer = Tokenizer::open(folder).map_err(Error::input)?;
        Ok(Self {
            name: planned.model.name.clone(),
            tokenizer: Arc::new(tokenizer),
            template: ChatTemplate::open(folder, template, program)?,
            ends: checkpoint.end_of_text().or_input()?,
            most_tokens: extent.context + 1,
            vocab: planned.model.vocab,
            slots: extent.batch,
        })
    }
}
