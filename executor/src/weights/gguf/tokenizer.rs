//! The tokenizer of a GGUF file, written as the `tokenizer.json` of the same model.

use scenarios::Gguf;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// llama.cpp's names for the ways to split a text before pairs are merged, the pattern that the
/// models publish for each, and whether texts are normalised to NFC first.
const SPLITS: [(&str, &str, bool); 3] = [
    (
        "llama-bpe",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        false,
    ),
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        true,
    ),
    ("gpt-2", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", false),
];

/// Token types that a text cannot spell: control tokens, and tokens that a user added.
const SPECIAL: [u64; 2] = [3, 4];

/// The text of a `tokenizer.json`.
///
/// # Errors
/// The reason why there is none: the file has no tokens, or a kind of tokenizer that is not read.
pub(crate) fn tokenizer_json(gguf: &Gguf) -> Result<String, String> {
    let list = |key: &str| gguf.list(&format!("tokenizer.ggml.{key}")).unwrap_or_default();
    let tokens: Vec<&str> = list("tokens").iter().map(|token| token.as_str().unwrap_or_default()).collect();
    if tokens.is_empty() {
        return Err("the file has no tokens: put the model's tokenizer.json beside it".to_owned());
    }
    let kinds = list("token_type");
    let special =
        |id: &usize| kinds.get(*id).and_then(Value::as_u64).is_some_and(|kind| SPECIAL.contains(&kind));
    let added: Vec<Value> = (0..tokens.len())
        .filter(special)
        .map(|id| {
            json!({"id": id, "content": tokens[id], "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true})
        })
        .collect();
    let kind = gguf.text("tokenizer.ggml.model").unwrap_or_default();
    let mut tokenizer = match kind {
        "gpt2" => byte_pairs(gguf, &tokens)?,
        "llama" => pieces(&tokens, list("scores")),
        _ => {
            return Err(format!(
                "tokenizer.ggml.model is '{kind}': gpt2 and llama are read; put the model's tokenizer.json beside the file"
            ));
        }
    };
    tokenizer["version"] = json!("1.0");
    tokenizer["added_tokens"] = Value::from(added);
    let first = gguf.metadata.get("tokenizer.ggml.bos_token_id").and_then(Value::as_u64);
    let wanted =
        gguf.metadata.get("tokenizer.ggml.add_bos_token").and_then(Value::as_bool).unwrap_or(kind == "llama");
    if let Some(id) = first.filter(|&id| wanted && (id as usize) < tokens.len()) {
        let name = tokens[id as usize];
        let begin = json!({"SpecialToken": {"id": name, "type_id": 0}});
        tokenizer["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}},
        });
    }
    Ok(tokenizer.to_string())
}

/// GPT-2's tokenizer: bytes are letters, and pairs are merged in the order of a list.
fn byte_pairs(gguf: &Gguf, tokens: &[&str]) -> Result<Value, String> {
    let name = gguf.text("tokenizer.ggml.pre").unwrap_or("gpt-2");
    let Some((_, pattern, composed)) = SPLITS.into_iter().find(|(known, ..)| *known == name) else {
        let known = SPLITS.map(|(name, ..)| name).join(", ");
        return Err(format!(
            "tokenizer.ggml.pre is '{name}': {known} are read; put the model's tokenizer.json beside the file"
        ));
    };
    let merges = gguf.list("tokenizer.ggml.merges").unwrap_or_default();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    Ok(json!({
        "normalizer": composed.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}, level]},
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary(tokens), "merges": merges, "ignore_merges": name == "llama-bpe"},
    }))
}

/// SentencePiece's tokenizer: the pair that makes the piece with the highest score is merged first.
/// Characters without a piece become bytes.
fn pieces(tokens: &[&str], scores: &[Value]) -> Value {
    let score = |id: usize| scores.get(id).and_then(Value::as_f64).unwrap_or(0.0);
    let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, token) in tokens.iter().enumerate() {
        ids.entry(token).or_insert(id);
    }
    let mut merges: Vec<(usize, usize, usize)> = Vec::new();
    for (&token, &whole) in &ids {
        let cuts = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        merges.extend(cuts.filter_map(|(left, right)| Some((whole, *ids.get(left)?, *ids.get(right)?))));
    }
    merges.sort_by(|a, b| score(b.0).total_cmp(&score(a.0)).then(a.cmp(b)));
    let merges: Vec<Value> =
        merges.iter().map(|&(_, left, right)| json!([tokens[left], tokens[right]])).collect();
    json!({
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocabulary(tokens), "merges": merges, "unk_token": tokens[0], "fuse_unk": true,
            "byte_fallback": true},
    })
}

/// Tokens with their numbers. Of two tokens with the same spelling the first counts.
fn vocabulary(tokens: &[&str]) -> Map<String, Value> {
    let mut all = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        all.entry(*token).or_insert(json!(id));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metadata that a file converted from a golden model's tokenizer would have.
    fn gguf(folder: &str, model: &str, first: Option<&str>) -> (Gguf, Value) {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        let read = |file: &str| -> Value {
            let text = std::fs::read_to_string(format!("{root}/{folder}/{file}")).expect("a golden file");
            serde_json::from_str(&text).expect("JSON")
        };
        let (tokenizer, golden) = (read("tokenizer.json"), read("golden.json"));
        let vocabulary = tokenizer["model"]["vocab"].as_object().expect("a mapping");
        let mut tokens = vec![(String::new(), 1u64); 384];
        for (token, id) in vocabulary {
            tokens[id.as_u64().expect("a number") as usize].0.clone_from(token);
        }
        for added in tokenizer["added_tokens"].as_array().expect("a list") {
            let content = added["content"].as_str().expect("a text").to_owned();
            tokens[added["id"].as_u64().expect("a number") as usize] = (content, 3);
        }
        // The trainer numbers pieces in the order of their scores.
        let scores: Vec<_> = (0..tokens.len()).map(|id| -(id as f64)).collect();
        let merges = tokenizer["model"]["merges"].as_array().expect("a list").iter();
        let merges: Vec<_> = merges
            .map(|pair| {
                format!("{} {}", pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default())
            })
            .collect();
        let mut metadata = BTreeMap::from([
            ("tokenizer.ggml.model".to_owned(), json!(model)),
            ("tokenizer.ggml.pre".to_owned(), json!("llama-bpe")),
            ("tokenizer.ggml.tokens".to_owned(), tokens.iter().map(|(token, _)| json!(token)).collect()),
            ("tokenizer.ggml.token_type".to_owned(), tokens.iter().map(|(_, kind)| json!(kind)).collect()),
            ("tokenizer.ggml.scores".to_owned(), json!(scores)),
            ("tokenizer.ggml.merges".to_owned(), json!(merges)),
        ]);
        if let Some(first) = first {
            let id = tokens.iter().position(|(token, _)| token == first).expect("a token");
            metadata.insert("tokenizer.ggml.bos_token_id".to_owned(), json!(id));
            metadata.insert("tokenizer.ggml.add_bos_token".to_owned(), json!(true));
        }
        (Gguf { metadata, tensors: BTreeMap::new() }, golden)
    }

    #[test]
    fn texts_become_the_tokens_that_the_models_own_tokenizer_gives() {
        for (folder, model, first) in
            [("llama_gqa", "llama", Some("<s>")), ("llama3_rope", "gpt2", Some("<|begin_of_text|>"))]
        {
            let (gguf, golden) = gguf(folder, model, first);
            let text = tokenizer_json(&gguf).expect("a tokenizer");
            let tokenizer = tokenizers::Tokenizer::from_bytes(text).expect("the crate reads it");
            for case in golden["tokenizer"].as_array().expect("a list") {
                let text = case["text"].as_str().expect("a text");
                let ids = tokenizer.encode(text, true).expect("it encodes").get_ids().to_vec();
                assert_eq!(json!(ids), case["ids"], "{folder}: {text:?}");
                assert_eq!(
                    json!(tokenizer.decode(&ids, true).expect("it decodes")),
                    case["decoded"],
                    "{folder}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_read_is_named() {
        let (whole, _) = gguf("llama3_rope", "gpt2", None);
        for (key, value, word) in [
            ("tokenizer.ggml.model", json!("t5"), "'t5'"),
            ("tokenizer.ggml.pre", json!("chameleon"), "'chameleon'"),
            ("tokenizer.ggml.tokens", json!([]), "no tokens"),
        ] {
            let mut gguf = whole.clone();
            gguf.metadata.insert(key.to_owned(), value);
            let error = tokenizer_json(&gguf).expect_err(key);
            assert!(error.contains(word) && error.contains("tokenizer.json"), "{error}");
        }
    }
}
