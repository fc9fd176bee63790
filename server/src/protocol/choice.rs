//! One answer to a request, while its tokens come.

use super::generation::RequestKind;
use fulcrum::{FinishReason, TextStream, TokenLogprobs, Tokenizer};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// One answer to a request, while its tokens come.
pub(crate) struct ApiChoice {
    tokenizer: Arc<Tokenizer>,
    /// `None` once it is finished.
    stream: Option<TextStream<Arc<Tokenizer>>>,
    /// The tokens that end it, which have no text.
    ends: Vec<u32>,
    /// Bytes of the text that were given out, and how many characters they are.
    sent: usize,
    characters: usize,
    pub(crate) output_tokens: u64,
    pub(crate) finish: Option<FinishReason>,
}

/// What is new of an answer.
#[derive(Debug, Default)]
pub(crate) struct ChoiceDelta {
    pub(crate) text: String,
    pub(crate) tokens: Vec<NewToken>,
}

/// A token of an answer.
#[derive(Debug)]
pub(crate) struct NewToken {
    pub(crate) token: u32,
    logprobs: Option<TokenLogprobs>,
    /// Characters of the answer that were certain before it.
    offset: usize,
}

impl ChoiceDelta {
    /// Adds what is new after this.
    pub(crate) fn join(&mut self, next: Self) {
        self.text += &next.text;
        self.tokens.extend(next.tokens);
    }
}

impl ApiChoice {
    pub(crate) fn new(tokenizer: &Arc<Tokenizer>, stops: &[String], ends: &[u32]) -> Self {
        Self {
            tokenizer: Arc::clone(tokenizer),
            stream: Some(TextStream::new(Arc::clone(tokenizer), stops)),
            ends: ends.to_vec(),
            sent: 0,
            characters: 0,
            output_tokens: 0,
            finish: None,
        }
    }

    /// Adds a token.
    pub(crate) fn add(&mut self, token: u32, logprobs: Option<TokenLogprobs>) -> ChoiceDelta {
        let Some(stream) = &mut self.stream else { return ChoiceDelta::default() };
        self.output_tokens += 1;
        if !self.ends.contains(&token) {
            stream.add(token);
        }
        let certain = stream.certain();
        let text = certain.get(self.sent..).unwrap_or_default().to_owned();
        let offset = self.characters;
        self.sent += text.len();
        self.characters += text.chars().count();
        ChoiceDelta { text, tokens: vec![NewToken { token, logprobs, offset }] }
    }

    /// Ends it: the text that was held back.
    pub(crate) fn end(&mut self, finish: FinishReason) -> ChoiceDelta {
        let whole = self.stream.take().map(TextStream::whole).unwrap_or_default();
        self.finish = Some(finish);
        let text = whole.get(self.sent..).unwrap_or_default().to_owned();
        ChoiceDelta { text, tokens: vec![] }
    }

    /// Why it ended, in OpenAI's words.
    pub(crate) fn finish_reason(&self) -> Option<&'static str> {
        self.finish.map(|finish| match finish {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Interrupted | FinishReason::Failed => unreachable!("its client got an error"),
        })
    }

    /// The log-probabilities of the tokens of `delta`, as requests of this kind want them.
    pub(crate) fn logprobs(&self, kind: RequestKind, delta: &ChoiceDelta) -> Value {
        let tokens = delta.tokens.iter().filter_map(|new| Some((new, new.logprobs.as_ref()?)));
        let text = |token: u32| self.tokenizer.token_text(token);
        match kind {
            RequestKind::Chat => {
                let entry = |token: u32, logprob: f32| {
                    let text = text(token);
                    // A part of a character has no text of its own.
                    let bytes =
                        (!text.contains(char::REPLACEMENT_CHARACTER)).then(|| text.as_bytes().to_vec());
                    json!({"token": text, "logprob": logprob, "bytes": bytes})
                };
                let content = tokens.map(|(new, logprobs)| {
                    let mut one = entry(new.token, logprobs.chosen);
                    one["top_logprobs"] =
                        logprobs.top.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
                    one
                });
                json!({"content": content.collect::<Vec<_>>()})
            }
            RequestKind::Completion => {
                let (mut texts, mut chosen, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
                for (new, logprobs) in tokens {
                    texts.push(text(new.token));
                    offsets.push(new.offset);
                    chosen.push(logprobs.chosen);
                    let mut top = Map::new();
                    // Parts of characters have one text: the most probable of them stands for all.
                    for &(token, logprob) in logprobs.top.iter().chain([&(new.token, logprobs.chosen)]) {
                        top.entry(text(token)).or_insert(json!(logprob));
                    }
                    tops.push(top);
                }
                json!({"tokens": texts, "token_logprobs": chosen, "top_logprobs": tops, "text_offset": offsets})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_the_characters_that_are_complete() {
        let json = include_bytes!("../../../fuzz/seeds/tokenizer/bytes.json");
        let tokenizer = Arc::new(Tokenizer::from_json("tokenizer.json".as_ref(), json).expect("a tokenizer"));
        let mut choice = ApiChoice::new(&tokenizer, &[], &[]);
        // Two, three and one byte, each a token.
        let tokens = tokenizer.encode("é平a").expect("every byte has a token");
        let offsets = tokens.iter().flat_map(|&token| choice.add(token, None).tokens).map(|new| new.offset);
        assert_eq!(offsets.collect::<Vec<_>>(), [0, 0, 1, 1, 1, 2]);
    }
}
