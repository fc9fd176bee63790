//! What somebody wants of a model.

use super::advised_engine::AdvisedEngine;
use crate::error::{Error, Result};
use scenarios::Workload;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What the model is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// One conversation.
    #[default]
    Chat,
    /// One programmer: long prompts, and answers that are waited for.
    Code,
    /// Many requests at once, for which nobody waits.
    Batch,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Code, Self::Batch];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Code => "code",
            Self::Batch => "batch",
        }
    }

    /// The load whose times are told: sequences, prompt and answer.
    fn load(self) -> [u64; 3] {
        match self {
            Self::Chat => [1, 1024, 256],
            Self::Code => [1, 8192, 512],
            Self::Batch => [16, 512, 256],
        }
    }

    /// Tokens for which each sequence has room.
    fn context(self) -> u64 {
        match self {
            Self::Chat => 8192,
            Self::Code => 32_768,
            Self::Batch => 2048,
        }
    }

    /// Tokens per second that are enough: reading a chat, not waiting for code, a night's work.
    pub(super) fn enough(self) -> f64 {
        match self {
            Self::Chat => 10.0,
            Self::Code => 20.0,
            Self::Batch => 50.0,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Purpose {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|purpose| purpose.name() == word);
        found.ok_or_else(|| format!("'{word}' is none of chat, code, batch"))
    }
}

/// Tokens for which there is room behind a prompt whose length is asked about.
const ANSWER: u64 = 512;

/// What somebody wants of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviceQuestion {
    /// What it is for.
    pub purpose: Purpose,
    /// The least tokens per second, of all sequences together; where absent, what is enough for the
    /// purpose.
    pub min_rate: Option<f64>,
    /// Tokens for which each sequence has room; where absent, what the purpose needs.
    pub context: Option<u64>,
    /// Tokens of the prompt whose time is told; where absent, those of the purpose.
    pub prompt: Option<u64>,
    /// Tokens of a prefill step (`-ub`); where absent, those that are best for the load.
    pub micro_batch: Option<u64>,
    /// The engine that runs it.
    pub engine: AdvisedEngine,
    /// The one model that is asked about; all of the catalogue where absent.
    pub model: Option<String>,
    /// The one format that is asked about; the engine's usual ones where absent.
    pub format: Option<String>,
}

impl AdviceQuestion {
    /// The question with room for `longest` tokens alone, the most that the model takes. `None`
    /// where there is no more room, or where somebody asked for more.
    pub(super) fn within(&self, longest: u64) -> Option<Self> {
        let is_asked_for =
            self.context.is_some() || self.prompt.is_some_and(|it| it.saturating_add(ANSWER) > longest);
        let is_shorter = !is_asked_for && longest < self.room_tokens();
        is_shorter.then(|| Self { context: Some(longest), ..self.clone() })
    }

    /// Refuses a prompt that leaves no room for an answer.
    pub(super) fn check_prompt(&self) -> Result<()> {
        let most = self.load().prompt_tokens;
        match (self.prompt.filter(|prompt| *prompt > most), self.context) {
            (Some(prompt), Some(context)) => Err(Error::input(format!(
                "--prompt {prompt} --context {context}: beside an answer a prompt has at most {most} tokens there"
            ))),
            _ => Ok(()),
        }
    }

    /// The load whose times are told.
    pub(super) fn load(&self) -> Workload {
        let [batch, prompt, output] = self.purpose.load();
        let room = self.room_tokens();
        // A prompt that was asked for leaves the answer what is left.
        let most = self.prompt.map_or(room / 2, |prompt| room.saturating_sub(prompt));
        let output = output.min(most.max(1));
        let prompt = self.prompt.unwrap_or(prompt).min(room.saturating_sub(output)).max(1);
        Workload::new(batch, prompt, output)
    }

    /// The load that memory must hold: the whole context of each sequence.
    pub(super) fn room(&self) -> Workload {
        let load = self.load();
        let prompt = self.room_tokens().saturating_sub(load.output_tokens).max(load.prompt_tokens);
        Workload::new(load.batch, prompt, load.output_tokens)
    }

    /// The words of the formats that are asked about; `own` is the one that a model was trained in.
    pub(super) fn formats(&self, own: Option<&str>) -> Vec<String> {
        self.format.as_ref().map_or_else(|| self.engine.formats(own), |format| vec![format.clone()])
    }

    /// The least rate.
    pub(super) fn least_rate(&self) -> f64 {
        self.min_rate.unwrap_or_else(|| self.purpose.enough())
    }

    fn room_tokens(&self) -> u64 {
        self.context
            .unwrap_or_else(|| self.purpose.context().max(self.prompt.unwrap_or(0).saturating_add(ANSWER)))
    }
}
