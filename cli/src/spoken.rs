//! The text of an answer, printed as it comes.

use crate::speech::Speech;
use crate::terminal::{out, outln};
use executor::Tokenizer;

/// An answer that is printed as it comes, or nothing.
pub struct Spoken<'t> {
    speech: Option<(Speech<'t>, &'t Tokenizer)>,
    /// The tokens that end it.
    ends: Vec<u32>,
    ended: bool,
    shown: usize,
    aloud: bool,
}

impl<'t> Spoken<'t> {
    /// Nothing is printed, nothing ends.
    pub fn silent() -> Self {
        Self { speech: None, ends: vec![], ended: false, shown: 0, aloud: false }
    }

    /// What is said in words, until one of `stops` or `ends` comes; printed where `aloud`.
    pub fn new(tokenizer: &'t Tokenizer, stops: &'t [String], ends: Vec<u32>, aloud: bool) -> Self {
        Self { speech: Some((Speech::new(tokenizer, stops), tokenizer)), ends, aloud, ..Self::silent() }
    }

    /// The tokens that end it.
    pub fn ends(&self) -> Vec<u32> {
        self.ends.clone()
    }

    /// What makes words of tokens.
    pub fn tokenizer(&self) -> Option<&'t Tokenizer> {
        self.speech.as_ref().map(|(_, tokenizer)| *tokenizer)
    }

    /// One token more.
    pub fn add(&mut self, token: u32) {
        let Some((speech, _)) = &mut self.speech else { return };
        speech.add(token);
        self.ended |= speech.is_stopped() || self.ends.contains(&token);
        let certain = speech.certain().len();
        self.print(certain);
    }

    fn print(&mut self, until: usize) {
        let Some((speech, _)) = &self.speech else { return };
        if let (true, Some(new)) = (self.aloud, speech.certain().get(self.shown..until)) {
            out!("{new}");
        }
        self.shown = self.shown.max(until);
    }

    /// The whole text, with why it ended; nothing where nothing was said in words.
    pub fn finish(self, interrupted: bool) -> Option<(String, &'static str)> {
        let (speech, _) = self.speech?;
        let text = speech.whole();
        if self.aloud {
            let rest = text.get(self.shown..).unwrap_or_default();
            outln!("{rest}");
        }
        let finish = match (self.ended, interrupted) {
            (true, _) => "stop",
            (false, true) => "interrupted",
            (false, false) => "length",
        };
        Some((text, finish))
    }
}
