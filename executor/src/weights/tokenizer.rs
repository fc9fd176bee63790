//! A model's tokenizer.

use crate::error::ExecutorError;
use crate::weights::gguf::tokenizer::tokenizer_json;
use crate::weights::text_growth;
use scenarios::Gguf;
use serde_json::{Map, json};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// A model folder's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of `folder`. For a GGUF file, reads the `tokenizer.json` beside it,
    /// or else the tokenizer inside the file.
    ///
    /// # Errors
    /// It is missing, or not a tokenizer.
    pub fn open(folder: &Path) -> Result<Self, ExecutorError> {
        let is_file = folder.is_file();
        let beside =
            if is_file { folder.with_file_name("tokenizer.json") } else { folder.join("tokenizer.json") };
        let own = is_file && !beside.exists();
        let path = if own { folder } else { &beside };
        let failed = |reason: String| ExecutorError::Tokenizer { path: path.to_owned(), reason };
        let json = match own {
            true => tokenizer_json(&Gguf::open(folder)?).map_err(failed)?.into_bytes(),
            false => hwprofiles::read_input(path).map_err(|error| failed(error.to_string()))?,
        };
        Self::from_json(path, &json)
    }

    /// The tokenizer that is in `json`, the content of the file `path`.
    ///
    /// # Errors
    /// It is not a tokenizer, or could make a text thousands of times as long.
    pub fn from_json(path: &Path, json: &[u8]) -> Result<Self, ExecutorError> {
        let path = path.to_owned();
        let read = unpanicked(|| tokenizers::Tokenizer::from_bytes(json)).map_err(|error| error.to_string());
        match read.and_then(|inner| text_growth::check(json).map(|()| inner)) {
            Ok(inner) => Ok(Self { path, inner }),
            Err(error) => Err(ExecutorError::Tokenizer { path, reason: format!("not a tokenizer: {error}") }),
        }
    }

    /// The tokens of `text`, with the special tokens that the model was trained with, such as a
    /// beginning of text.
    ///
    /// # Errors
    /// The tokenizer has no token for some of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ExecutorError> {
        let encoding = unpanicked(|| self.inner.encode(text, true)).map_err(|error| self.failed(error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokens of a text that spells its special tokens, as a chat template writes it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_formatted(&self, text: &str) -> Result<Vec<u32>, ExecutorError> {
        let encoding = unpanicked(|| self.inner.encode(text, false)).map_err(|error| self.failed(error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of one token, special or not; the replacement character where it is a part of a
    /// character.
    pub fn token_text(&self, token: u32) -> String {
        unpanicked(|| self.inner.decode(&[token], false)).unwrap_or_default()
    }

    /// The text of `tokens`, without special tokens.
    ///
    /// # Errors
    /// The decoder refuses them.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, ExecutorError> {
        unpanicked(|| self.inner.decode(tokens, true)).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: tokenizers::Error) -> ExecutorError {
        ExecutorError::Tokenizer { path: self.path.clone(), reason: error.to_string() }
    }
}

/// What `work` returns; an error where it panics. The library trusts its file: one that contradicts
/// itself makes it index beyond a list.
fn unpanicked<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    let panicked = |_| Err("its parts contradict each other".into());
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// A tokenizer with one token for every byte and no others, for models of random weights. Byte b is
/// token b. Bytes beyond the vocabulary have no token and are dropped from the input.
pub(crate) fn byte_level_json(vocab: u64) -> String {
    let vocabulary: Map<_, _> =
        (0..256u64.min(vocab)).map(|byte| (byte_letter(byte as u8).to_string(), json!(byte))).collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocabulary,
            "merges": [],
        },
    });
    format!("{tokenizer:#}\n")
}

/// The letter that stands for a byte in byte-level tokenizers (GPT-2): the byte itself where it is
/// visible, otherwise the next unused letter from U+0100 on.
fn byte_letter(byte: u8) -> char {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if visible(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&byte| !visible(byte)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_level_tokenizer_gives_every_text_back() {
        let inner = tokenizers::Tokenizer::from_bytes(byte_level_json(1000)).expect("a tokenizer");
        let tokenizer = Tokenizer { path: PathBuf::new(), inner };
        for text in ["", "a lever", "naïve – 平衡 🪨\n\t\u{0}", " two  spaces "] {
            let tokens = tokenizer.encode(text).expect("every byte has a token");
            let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
            assert_eq!(tokens, bytes, "byte b is token b");
            assert_eq!(tokenizer.decode(&tokens).expect("tokens of a text"), text);
        }
    }

    #[test]
    fn a_file_at_which_the_library_panics_is_an_error() {
        // Whoever cuts after one token cannot go on one token later.
        let truncation = "\"truncation\": {\"direction\": \"Right\", \"max_length\": 1, \
                          \"strategy\": \"LongestFirst\", \"stride\": 1}";
        let json = byte_level_json(1000).replacen("\"truncation\": null", truncation, 1);
        let inner = tokenizers::Tokenizer::from_bytes(json).expect("the library takes it");
        let tokenizer = Tokenizer { path: PathBuf::from("tokenizer.json"), inner };
        for encoded in [tokenizer.encode("ab"), tokenizer.encode_formatted("ab")] {
            let error = encoded.expect_err("the library panics").to_string();
            assert!(error.contains("tokenizer.json") && error.contains("contradict"), "{error}");
        }
    }
}
