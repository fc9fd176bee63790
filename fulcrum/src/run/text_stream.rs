//! The text of an answer while its tokens come.

use executor::Tokenizer;
use std::ops::Deref;

/// An unfinished character decodes to this one.
const UNFINISHED: char = '\u{FFFD}';
/// More tokens than this are no unfinished character: their bytes are no text.
const MOST_TOKENS: usize = 8;

/// The text of an answer, up to the first of the texts that stop it.
///
/// A token may be part of a character, and a tokenizer may join words to those before them. So the
/// last tokens are decoded together with those before them, and only the text that is new is added.
pub struct TextStream<T> {
    tokenizer: T,
    stops: Vec<String>,
    /// The last tokens: first those whose text is added already, then those whose text is not.
    tokens: Vec<u32>,
    /// How many of them have their text added.
    added: usize,
    text: String,
    /// Where the text ends, once a stop was found.
    end: Option<usize>,
}

impl<T: Deref<Target = Tokenizer>> TextStream<T> {
    /// An empty text that one of `stops` ends.
    pub fn new(tokenizer: T, stops: &[String]) -> Self {
        Self { tokenizer, stops: stops.to_vec(), tokens: vec![], added: 0, text: String::new(), end: None }
    }

    /// Adds a token.
    pub fn add(&mut self, token: u32) {
        self.tokens.push(token);
        let decode = |tokens: &[u32]| self.tokenizer.decode(tokens).unwrap_or_default();
        let (before, now) = (decode(&self.tokens[..self.added]), decode(&self.tokens));
        if now.ends_with(UNFINISHED) && self.tokens.len() - self.added < MOST_TOKENS {
            return;
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        self.text += now.get(before.len()..).unwrap_or_default();
        self.tokens.drain(..self.added);
        self.added = self.tokens.len();
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let found = self.stops.iter().filter_map(|stop| self.text[from..].find(stop.as_str()));
        self.end = self.end.or(found.min().map(|at| from + at));
    }

    /// Whether one of the texts that stop it has come.
    pub fn is_stopped(&self) -> bool {
        self.end.is_some()
    }

    /// The text so far, without an end that may be the beginning of a text that stops it.
    pub fn certain(&self) -> &str {
        let text = &self.text[..self.end.unwrap_or(self.text.len())];
        if self.end.is_some() {
            return text;
        }
        let begins = |stop: &str| {
            let lengths = (1..stop.len()).rev().filter(|&length| stop.is_char_boundary(length));
            lengths.filter(|&length| text.ends_with(&stop[..length])).max().unwrap_or(0)
        };
        let held = self.stops.iter().map(|stop| begins(stop)).max().unwrap_or(0);
        &text[..text.len() - held]
    }

    /// The whole text, when no more tokens come.
    pub fn whole(mut self) -> String {
        let rest = self.tokenizer.decode(&self.tokens).unwrap_or_default();
        let before = self.tokenizer.decode(&self.tokens[..self.added]).unwrap_or_default();
        match self.end {
            Some(end) => self.text.truncate(end),
            None => self.text += rest.get(before.len()..).unwrap_or_default(),
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scenarios::Model;

    /// A tokenizer in which every byte is a token.
    fn bytes(test: impl Fn(&Tokenizer)) {
        let folder = tempfile::tempdir().expect("a folder");
        let model = Model { layers: 1, ..Model::preset("fulcrum-tiny").expect("a preset") };
        executor::make_random(&model, &folder.path().join("m"), 1).expect("written");
        test(&Tokenizer::open(&folder.path().join("m")).expect("a tokenizer"));
    }

    #[test]
    fn the_certain_text_grows_to_the_whole_and_never_shrinks() {
        bytes(|tokenizer| {
            for text in ["", "a lever", "naïve – 平衡 🪨\n\t", " two  spaces "] {
                for stops in [vec![], vec!["xyz".to_owned()], vec![" ".repeat(3), "衡 🪨!".to_owned()]] {
                    let mut stream = TextStream::new(tokenizer, &stops);
                    let mut before = String::new();
                    for token in text.bytes().map(u32::from) {
                        stream.add(token);
                        assert!(stream.certain().starts_with(&before) && text.starts_with(stream.certain()));
                        before = stream.certain().to_owned();
                    }
                    assert!(!stream.is_stopped());
                    assert_eq!(stream.whole(), text);
                }
            }
        });
    }

    #[test]
    fn a_text_ends_before_the_first_stop() {
        bytes(|tokenizer| {
            let stops = ["wer".to_owned(), "–B".to_owned()];
            for (text, wanted) in [("a lower", "a lo"), ("x–By wer", "x"), ("wwer", "w"), ("we–wer", "we–")]
            {
                let mut stream = TextStream::new(tokenizer, &stops);
                let stopped = text.bytes().position(|byte| {
                    stream.add(u32::from(byte));
                    assert!(wanted.starts_with(stream.certain()), "{text}: {}", stream.certain());
                    stream.is_stopped()
                });
                assert!(stopped.is_some(), "{text}");
                assert_eq!(stream.whole(), wanted);
            }
        });
    }

    #[test]
    fn bytes_that_are_no_text_do_not_delay_the_rest() {
        bytes(|tokenizer| {
            let mut stream = TextStream::new(tokenizer, &[]);
            (0..50).for_each(|_| stream.add(0x80));
            assert!(stream.tokens.len() <= 2 * MOST_TOKENS);
            "after".bytes().for_each(|byte| stream.add(u32::from(byte)));
            assert!(stream.whole().ends_with("after"));
        });
    }
}
