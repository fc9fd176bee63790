//! The answers of a file of requests, kept as they come: a run that is stopped loses none.

use super::batch_file::BatchRequest;
use crate::error::{OrError, Result};
use crate::identity;
use crate::input_files::InputFiles;
use crate::journal::{Journal, JournalTask};
use crate::pipeline::ResolvedPlan;
use executor::{FinishReason, GenerationResult};
use hwprofiles::write_atomically;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the answers of a file of requests depend on.
#[derive(Clone, Copy)]
pub struct BatchJob<'j> {
    /// The plan.
    pub planned: &'j ResolvedPlan,
    /// The model's folder, or its GGUF file.
    pub model_dir: &'j Path,
    /// The requests.
    pub requests: &'j [BatchRequest],
    /// The tokens that end an answer.
    pub ends: &'j [u32],
}

impl BatchJob<'_> {
    /// A digest of all of it.
    fn identity(&self) -> Result<String> {
        let mut model = InputFiles::default();
        model.add_path(self.model_dir);
        let request = |request: &BatchRequest| json!(format!("{request:?}"));
        Ok(identity::short_digest(&json!({
            "build": identity::RUN_BUILD,
            "plan": self.planned.plan.fingerprint(),
            "files": model.weights_identity()?,
            "requests": self.requests.iter().map(request).collect::<Vec<_>>(),
            "ends": self.ends,
        })))
    }
}

/// Where answers go.
pub enum AnswerFile<'w> {
    /// Into a journal, and all at once into the file at the end.
    Kept(KeptAnswers),
    /// Line by line into a pipe or a device, in the order of the requests.
    Streamed(StreamedAnswers<'w>),
}

/// A file of answers, and the journal beside it.
pub struct KeptAnswers {
    out: PathBuf,
    journal: Journal,
}

/// Writes a line.
type WriteLine<'w> = Box<dyn FnMut(&str) -> Result<()> + 'w>;

/// Answers that wait until those before them are written.
pub struct StreamedAnswers<'w> {
    write: WriteLine<'w>,
    next: usize,
    waiting: BTreeMap<usize, String>,
}

impl<'w> AnswerFile<'w> {
    /// Answers that `write` writes.
    pub fn streamed(write: impl FnMut(&str) -> Result<()> + 'w) -> Self {
        Self::Streamed(StreamedAnswers { write: Box::new(write), next: 0, waiting: BTreeMap::new() })
    }

    /// The file `out` for the answers of `job`. With `resume` it has the answers that an earlier
    /// run has kept.
    ///
    /// # Errors
    /// It cannot be written, another process writes it, or there are answers that must not be
    /// resumed.
    pub fn open(out: &Path, job: &BatchJob<'_>, resume: bool) -> Result<Self> {
        let task = JournalTask {
            name: "batch",
            differs_in: "another plan, other requests, another model or another build",
            identity: &job.identity()?,
            places: job.requests.len() as u64,
            resume,
        };
        Ok(Self::Kept(KeptAnswers { out: out.to_owned(), journal: Journal::open(out, task)? }))
    }

    /// Which of `requests` have an answer already.
    pub fn answered(&self, requests: usize) -> Vec<bool> {
        match self {
            Self::Kept(kept) => kept.journal.finished(),
            Self::Streamed(_) => vec![false; requests],
        }
    }

    /// Keeps the line of an answer that came to its end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, place: usize, line: String) -> Result<()> {
        match self {
            Self::Kept(kept) => kept.journal.add(place as u64, &line),
            Self::Streamed(StreamedAnswers { write, next, waiting }) => {
                waiting.insert(place, line);
                while let Some(line) = waiting.remove(next) {
                    write(&line)?;
                    *next += 1;
                }
                Ok(())
            }
        }
    }

    /// Writes the line of every request, by `unanswered` where there is no answer. Answers are kept
    /// for another run where some are missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn publish(self, requests: usize, unanswered: impl Fn(usize) -> String) -> Result<()> {
        match self {
            Self::Kept(KeptAnswers { out, mut journal }) => {
                let (finished, mut text) = (journal.finished(), String::new());
                for (place, finished) in finished.iter().enumerate() {
                    text += &if *finished { journal.text(place)? } else { unanswered(place) };
                    text.push('\n');
                }
                write_atomically(&out, text).or_failed()?;
                match finished.iter().all(|finished| *finished) {
                    true => journal.remove(),
                    false => Ok(()),
                }
            }
            Self::Streamed(StreamedAnswers { mut write, next, mut waiting }) => {
                let mut rest =
                    (next..requests).map(|at| waiting.remove(&at).unwrap_or_else(|| unanswered(at)));
                rest.try_for_each(|line| write(&line))
            }
        }
    }
}

/// Whether an answer came to its own end, so that another run would make it again.
pub(crate) fn is_whole(answer: &GenerationResult) -> bool {
    matches!(answer.finish, FinishReason::Length | FinishReason::Stop)
}
