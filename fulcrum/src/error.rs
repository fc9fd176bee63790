//! The one error of this crate, by whose fault it is.

use std::error::Error as StdError;
use std::fmt;

/// What functions of this crate return.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A boxed error of another crate.
type Cause = Box<dyn StdError + Send + Sync>;

/// Why there is no result. The kind says who can do something about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a key or an argument is wrong: whoever wrote it can mend it.
    #[error("{0}")]
    Input(ErrorDetail),
    /// The question is right, and nothing satisfies its constraints.
    #[error("{0}")]
    Infeasible(ErrorDetail),
    /// The world failed: a disk is full, a device broke.
    #[error("{0}")]
    Failed(ErrorDetail),
}

/// What went wrong: a text that names file, key and value, and the error behind it.
#[derive(Debug)]
pub struct ErrorDetail {
    text: String,
    cause: Cause,
}

impl ErrorDetail {
    /// The whole text: what was wrong, then each cause behind it that it does not tell already.
    fn new(cause: Cause) -> Self {
        let mut text = cause.to_string();
        let mut next = cause.source();
        while let Some(source) = next {
            let told = source.to_string();
            if !text.ends_with(&told) {
                text += &format!(": {told}");
            }
            next = source.source();
        }
        Self { text, cause }
    }

    /// The error of the crate that found it, for a caller who knows its type.
    pub fn cause(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.cause
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error {
    /// Something is wrong with what was asked.
    pub fn input(cause: impl Into<Cause>) -> Self {
        Self::Input(ErrorDetail::new(cause.into()))
    }

    /// Nothing satisfies the constraints.
    pub fn infeasible(cause: impl Into<Cause>) -> Self {
        Self::Infeasible(ErrorDetail::new(cause.into()))
    }

    /// The world failed.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self::Failed(ErrorDetail::new(cause.into()))
    }

    /// What went wrong.
    pub fn detail(&self) -> &ErrorDetail {
        match self {
            Self::Input(detail) | Self::Infeasible(detail) | Self::Failed(detail) => detail,
        }
    }

    /// The same error with `context` and a colon before its text.
    #[must_use]
    pub fn within(mut self, context: &str) -> Self {
        let (Self::Input(detail) | Self::Infeasible(detail) | Self::Failed(detail)) = &mut self;
        detail.text = format!("{context}: {}", detail.text);
        self
    }
}

/// Gives an error of another crate its kind, where it is known whose fault it is.
pub trait OrError<T> {
    /// The input is wrong.
    ///
    /// # Errors
    /// [`Error::Input`] where there was an error.
    fn or_input(self) -> Result<T>;

    /// The world failed.
    ///
    /// # Errors
    /// [`Error::Failed`] where there was an error.
    fn or_failed(self) -> Result<T>;
}

impl<T, E: Into<Cause>> OrError<T> for Result<T, E> {
    fn or_input(self) -> Result<T> {
        self.map_err(Error::input)
    }

    fn or_failed(self) -> Result<T> {
        self.map_err(Error::failed)
    }
}

/// Puts a context before the text of an error.
pub(crate) trait ErrorContext<T> {
    /// `context()` and a colon before the text.
    fn within(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ErrorContext<T> for Result<T> {
    fn within(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.within(&context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the file is gone")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn the_text_has_every_cause_once_and_the_cause_keeps_its_type() {
        let error = Error::failed(Outer(std::fmt::Error)).within("plan.yaml");
        let formatting = std::fmt::Error.to_string();
        assert_eq!(error.to_string(), format!("plan.yaml: the file is gone: {formatting}"));
        assert!(error.detail().cause().downcast_ref::<Outer>().is_some());
        assert_eq!(Error::input("no such key").to_string(), "no such key");
    }
}
