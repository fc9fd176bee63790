//! A file of requests: one JSON object a line.
//!
//! ```json
//! {"prompt": "A lever", "max_tokens": 32, "stop": ["\n"], "seed": 7}
//! {"tokens": [12, 99, 4], "temperature": 0.8, "top_k": 40}
//! ```

use crate::error::{Error, Result};
use executor::{Sampling, Tokenizer};
use hwprofiles::yaml;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// A request of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRequest {
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// The most tokens of the answer.
    pub output_tokens: u64,
    /// The texts that end the answer.
    pub stops: Vec<String>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// The values of keys that a line leaves out, and what no line may exceed.
pub struct BatchDefaults<'h> {
    /// The tokenizer of the model's folder, where there is one.
    pub tokenizer: Option<&'h Tokenizer>,
    /// The most tokens of an answer.
    pub output_tokens: u64,
    /// Texts that end every answer.
    pub stops: &'h [String],
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The most tokens of a prompt and its answer together.
    pub most_tokens: u64,
    /// The model's vocabulary: tokens are below it.
    pub vocab: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    prompt: Option<String>,
    tokens: Option<Vec<u32>>,
    max_tokens: Option<u64>,
    stop: Option<StopTexts>,
    seed: Option<u64>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StopTexts {
    One(String),
    Several(Vec<String>),
}

/// Reads the requests of a file, in their order. Empty lines are passed over.
///
/// # Errors
/// Names the file, the line and the key of the first request that is wrong, or says that there is
/// no request.
pub fn read_batch(path: &Path, defaults: &BatchDefaults<'_>) -> Result<Vec<BatchRequest>> {
    let file = path.display().to_string();
    let text = hwprofiles::read_text(path).map_err(|error| Error::input(format!("{file}: {error}")))?;
    let mut all = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let wrong = |reason| Error::input(format!("{file}:{number}: {reason}"));
        all.push(read_line(line, defaults).map_err(wrong)?);
    }
    match all.is_empty() {
        true => Err(Error::input(format!(
            "{file}: no request: a line like {{\"prompt\": \"A lever\"}} is wanted"
        ))),
        false => Ok(all),
    }
}

fn read_line(line: &str, defaults: &BatchDefaults<'_>) -> Result<BatchRequest, String> {
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(line));
    let line: RequestLine = read.map_err(|error| refused(line, &error))?;
    let prompt = match (line.prompt, line.tokens) {
        (Some(text), None) => {
            let tokenizer =
                defaults.tokenizer.ok_or("prompt: the model's folder has no tokenizer.json: give tokens")?;
            tokenizer.encode(&text).map_err(|error| format!("prompt: {error}"))?
        }
        (None, Some(tokens)) => tokens,
        (Some(_), Some(_)) => return Err("tokens: there is a prompt already: leave one out".to_owned()),
        (None, None) => {
            return Err("prompt: missing: a text, or tokens: a list of numbers, is wanted".to_owned());
        }
    };
    let output_tokens = line.max_tokens.unwrap_or(defaults.output_tokens);
    if output_tokens == 0 {
        return Err("max_tokens: 0: at least 1 is wanted".to_owned());
    }
    let (length, most) = (prompt.len() as u64, defaults.most_tokens);
    if length == 0 {
        return Err("prompt: no token: at least one is wanted".to_owned());
    }
    if length.saturating_add(output_tokens) > most {
        return Err(format!(
            "max_tokens: {length} tokens of the prompt and {output_tokens} of the answer: the plan is for {most} together"
        ));
    }
    if let Some(token) = prompt.iter().find(|&&token| u64::from(token) >= defaults.vocab) {
        return Err(format!("tokens: {token}: the model has tokens below {}", defaults.vocab));
    }
    let mut stops = match line.stop {
        None => vec![],
        Some(StopTexts::One(stop)) => vec![stop],
        Some(StopTexts::Several(stops)) => stops,
    };
    if stops.iter().any(String::is_empty) {
        return Err("stop: an empty text stops nothing: leave it out".to_owned());
    }
    if defaults.tokenizer.is_none() && !stops.is_empty() {
        return Err("stop: the model's folder has no tokenizer.json".to_owned());
    }
    stops.extend_from_slice(defaults.stops);
    let sampling = sampling(defaults.sampling, line.temperature, line.top_k, line.top_p, line.seed)?;
    Ok(BatchRequest { prompt, output_tokens, stops, sampling })
}

/// What is wrong with a line. An unknown key is answered as in other documents.
fn refused(line: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let is_unknown_key = error.inner().to_string().starts_with("unknown field");
    let value = serde_json::from_str::<Value>(line).ok().filter(|_| is_unknown_key);
    match value.and_then(|value| yaml::read_value::<RequestLine>(&value, "").err()) {
        Some(error) => format!("{}: {}", error.key, error.message),
        None => format!("{}: {}", error.path(), error.inner()),
    }
}

/// The default sampling with the values of a line in place of its own.
fn sampling(
    default: Sampling,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    seed: Option<u64>,
) -> Result<Sampling, String> {
    let sampling = match (default, temperature) {
        (Sampling::Greedy, None) if top_k.is_some() || top_p.is_some() => {
            return Err("temperature: missing: top_k and top_p choose among tokens that are drawn".to_owned());
        }
        (Sampling::Greedy, None) => Sampling::Greedy,
        (Sampling::Greedy, Some(temperature)) => {
            Sampling::Random { temperature, top_k, top_p, seed: seed.unwrap_or(0) }
        }
        (Sampling::Random { temperature: t, top_k: k, top_p: p, seed: s }, temperature) => Sampling::Random {
            temperature: temperature.unwrap_or(t),
            top_k: top_k.or(k),
            top_p: top_p.or(p),
            seed: seed.unwrap_or(s),
        },
    };
    sampling.check().map_err(|error| error.to_string().replace("sampling.", ""))?;
    Ok(sampling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> BatchDefaults<'static> {
        let sampling = Sampling::Greedy;
        BatchDefaults { tokenizer: None, output_tokens: 5, stops: &[], sampling, most_tokens: 10, vocab: 100 }
    }

    #[test]
    fn a_line_has_the_values_that_differ() {
        let request = read_line("{\"tokens\": [3, 4], \"max_tokens\": 2}", &defaults()).expect("valid");
        let wanted =
            BatchRequest { prompt: vec![3, 4], output_tokens: 2, stops: vec![], sampling: Sampling::Greedy };
        assert_eq!(request, wanted);
        let drawn =
            read_line("{\"tokens\": [3], \"temperature\": 0.5, \"top_k\": 4, \"seed\": 9}", &defaults());
        let sampling = Sampling::Random { temperature: 0.5, top_k: Some(4), top_p: None, seed: 9 };
        assert_eq!(drawn.expect("valid").sampling, sampling);
    }

    #[test]
    fn errors_name_the_key() {
        for (line, words) in [
            ("{", vec!["EOF"]),
            ("{\"promt\": \"x\"}", vec!["promt", "did you mean `prompt`?"]),
            ("{\"tokens\": [\"x\"]}", vec!["tokens[0]", "u32"]),
            ("{\"tokens\": [1], \"max_tokens\": -1}", vec!["max_tokens", "-1"]),
            ("{\"tokens\": [1], \"max_tokens\": 0}", vec!["max_tokens", "at least 1"]),
            ("{\"tokens\": [1], \"max_tokens\": 10}", vec!["max_tokens", "10 together"]),
            ("{\"tokens\": [100]}", vec!["tokens", "100", "below 100"]),
            ("{\"tokens\": []}", vec!["prompt", "at least one"]),
            ("{}", vec!["prompt", "missing"]),
            ("{\"prompt\": \"x\"}", vec!["prompt", "tokenizer.json"]),
            ("{\"tokens\": [1], \"prompt\": \"x\"}", vec!["tokens", "leave one out"]),
            ("{\"tokens\": [1], \"stop\": \"\"}", vec!["stop", "empty"]),
            ("{\"tokens\": [1], \"top_k\": 3}", vec!["temperature", "missing"]),
            ("{\"tokens\": [1], \"temperature\": 0}", vec!["temperature", "above 0"]),
        ] {
            let reason = read_line(line, &defaults()).expect_err(line);
            assert!(words.iter().all(|word| reason.contains(word)), "{line}: {reason}");
        }
    }
}
