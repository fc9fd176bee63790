//! The text of an answer, printed while its tokens come.

use super::terminal::{out, outln};
use fulcrum::{TextStream, Tokenizer};

/// An answer that is printed while its tokens come.
pub struct PrintedAnswer<'t> {
    stream: TextStream<&'t Tokenizer>,
    /// The tokens that end the answer.
    ends: Vec<u32>,
    ended: bool,
    /// Bytes that are printed already.
    shown: usize,
    /// Whether anything is printed.
    prints: bool,
}

impl<'t> PrintedAnswer<'t> {
    /// An empty answer that one of the texts `stops` or of the tokens `ends` ends.
    pub fn new(tokenizer: &'t Tokenizer, stops: &[String], ends: Vec<u32>, prints: bool) -> Self {
        let stream = TextStream::new(tokenizer, stops);
        Self { stream, ends, ended: false, shown: 0, prints }
    }

    /// Adds a token.
    pub fn add(&mut self, token: u32) {
        self.stream.add(token);
        self.ended |= self.stream.is_stopped() || self.ends.contains(&token);
        let certain = self.stream.certain();
        if self.prints
            && let Some(new) = certain.get(self.shown..)
        {
            out!("{new}");
        }
        self.shown = self.shown.max(certain.len());
    }

    /// The whole text, and why it ended.
    pub fn finish(self, interrupted: bool) -> (String, &'static str) {
        let text = self.stream.whole();
        if self.prints {
            outln!("{}", text.get(self.shown..).unwrap_or_default());
        }
        let reason = match (self.ended, interrupted) {
            (true, _) => "stop",
            (false, true) => "interrupted",
            (false, false) => "length",
        };
        (text, reason)
    }
}
