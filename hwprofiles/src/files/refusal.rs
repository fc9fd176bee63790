//! A rule between several keys that a document breaks.

use crate::files::yaml::{self, FileError};

/// The keys that lead to the value, and what would be right.
pub(crate) struct Refusal {
    path: Vec<String>,
    message: String,
}

/// Refuses when `wrong`.
pub(crate) fn refuse_if(wrong: bool, path: &[&str], message: String) -> Result<(), Refusal> {
    if !wrong {
        return Ok(());
    }
    Err(Refusal { path: path.iter().map(|&step| step.to_owned()).collect(), message })
}

impl Refusal {
    /// The same refusal for a value under `key`.
    pub fn under(mut self, key: &str) -> Self {
        self.path.insert(0, key.to_owned());
        self
    }

    /// The error with the line of the key.
    pub fn located(self, text: &str, file: &str) -> FileError {
        let path: Vec<_> = self.path.iter().map(String::as_str).collect();
        yaml::refuse(text, file, &path, self.message)
    }
}
