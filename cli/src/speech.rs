//! Text as its tokens come.

use executor::Tokenizer;

/// An unfinished character decodes to this.
const UNFINISHED: char = '\u{FFFD}';
/// More tokens than these are no unfinished character: what they say is none.
const MOST_TOKENS: usize = 8;

/// The text of an answer, up to the first of the texts that stop it.
///
/// A token may be part of a character, and a tokenizer may join words by what stands before: the last tokens are decoded
/// together with those before them, and only what is new is added.
pub struct Speech<'t> {
    tokenizer: &'t Tokenizer,
    stops: &'t [String],
    /// The last tokens: those whose text is there, then those whose text is not.
    tokens: Vec<u32>,
    /// How many of them are of the first sort.
    said: usize,
    text: String,
    /// Where the text ends, where a stop was found.
    end: Option<usize>,
}

impl<'t> Speech<'t> {
    /// Nothing yet.
    pub fn new(tokenizer: &'t Tokenizer, stops: &'t [String]) -> Self {
        Self { tokenizer, stops, tokens: vec![], said: 0, text: String::new(), end: None }
    }

    /// One token more.
    pub fn add(&mut self, token: u32) {
        self.tokens.push(token);
        let decode = |tokens: &[u32]| self.tokenizer.decode(tokens).unwrap_or_default();
        let (before, now) = (decode(&self.tokens[..self.said]), decode(&self.tokens));
        if now.ends_with(UNFINISHED) && self.tokens.len() - self.said < MOST_TOKENS {
            return;
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        self.text += now.get(before.len()..).unwrap_or_default();
        self.tokens.drain(..self.said);
        self.said = self.tokens.len();
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let found = self.stops.iter().filter_map(|stop| self.text[from..].find(stop.as_str()));
        self.end = self.end.or(found.min().map(|at| from + at));
    }

    /// Whether a text that stops it has come.
    pub fn is_stopped(&self) -> bool {
        self.end.is_some()
    }

    /// The text so far, without an end that may become one that stops it.
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

    /// All of the text, when nothing more comes.
    pub fn whole(mut self) -> String {
        let rest = self.tokenizer.decode(&self.tokens).unwrap_or_default();
        let before = self.tokenizer.decode(&self.tokens[..self.said]).unwrap_or_default();
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
    fn what_is_certain_grows_to_the_whole_text_and_never_shrinks() {
        bytes(|tokenizer| {
            for text in ["", "a lever", "naïve – 平衡 🪨\n\t", " two  spaces "] {
                for stops in [vec![], vec!["xyz".to_owned()], vec![" ".repeat(3), "衡 🪨!".to_owned()]] {
                    let mut speech = Speech::new(tokenizer, &stops);
                    let mut before = String::new();
                    for token in text.bytes().map(u32::from) {
                        speech.add(token);
                        assert!(speech.certain().starts_with(&before) && text.starts_with(speech.certain()));
                        before = speech.certain().to_owned();
                    }
                    assert!(!speech.is_stopped());
                    assert_eq!(speech.whole(), text);
                }
            }
        });
    }

    #[test]
    fn a_text_ends_before_the_first_stop_and_shows_nothing_of_it() {
        bytes(|tokenizer| {
            let stops = ["wer".to_owned(), "–B".to_owned()];
            for (text, wanted) in [("a lower", "a lo"), ("x–By wer", "x"), ("wwer", "w"), ("we–wer", "we–")]
            {
                let mut speech = Speech::new(tokenizer, &stops);
                let stopped = text.bytes().position(|byte| {
                    speech.add(u32::from(byte));
                    assert!(wanted.starts_with(speech.certain()), "{text}: {}", speech.certain());
                    speech.is_stopped()
                });
                assert!(stopped.is_some(), "{text}");
                assert_eq!(speech.whole(), wanted);
            }
        });
    }

    #[test]
    fn bytes_that_are_no_text_do_not_hold_up_the_rest() {
        bytes(|tokenizer| {
            let mut speech = Speech::new(tokenizer, &[]);
            (0..50).for_each(|_| speech.add(0x80));
            assert!(speech.tokens.len() <= 2 * MOST_TOKENS);
            "after".bytes().for_each(|byte| speech.add(u32::from(byte)));
            assert!(speech.whole().ends_with("after"));
        });
    }
}
