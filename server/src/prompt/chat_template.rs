//! How a model writes a conversation as one text.

use super::template_engine::{ConversationTurn, TemplateEngine, TemplateSource};
use super::template_process::{TemplateProcess, TemplateProgram};
use fulcrum::{Error, OrError, Result};
use scenarios::Gguf;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The Jinja template of a model's conversations.
#[derive(Debug)]
pub struct ChatTemplate(Renderer);

/// Where conversations are rendered.
#[derive(Debug)]
enum Renderer {
    Here(TemplateEngine),
    Process(TemplateProcess),
}

/// The keys of `tokenizer_config.json` that matter here.
#[derive(Deserialize)]
struct TokenizerConfig {
    chat_template: Option<Templates>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// One template, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl ChatTemplate {
    /// The template of a model's folder: `chat_template.jinja`, or else `chat_template` of
    /// `tokenizer_config.json`, or its entry named `default`. For a GGUF file
    /// `tokenizer.chat_template`. A `file` of the caller's goes before all of them. `None` where
    /// there is none.
    ///
    /// With a `program` it is rendered by that, in a process whose memory and time are limited:
    /// templates are from strangers, and within this process nothing limits the values that they
    /// make.
    ///
    /// # Errors
    /// A file cannot be read or is malformed, the template is not valid Jinja, or the program does
    /// not start.
    pub fn open(
        folder: &Path,
        file: Option<&Path>,
        program: Option<&TemplateProgram>,
    ) -> Result<Option<Self>> {
        let (mut template, special_tokens) = match folder.is_file() {
            true => from_gguf(folder, &Gguf::open(folder).or_input()?),
            false => from_folder(folder)?,
        };
        if let Some(path) = file {
            let text =
                read(path)?.ok_or_else(|| Error::input(format!("{}: no such file", path.display())))?;
            template = Some((path.to_owned(), text));
        }
        let Some((path, text)) = template else { return Ok(None) };
        let source = TemplateSource { path, text, special_tokens };
        let renderer = match program {
            Some(program) => Renderer::Process(TemplateProcess::start(program.clone(), source)?),
            None => Renderer::Here(TemplateEngine::new(source)?),
        };
        Ok(Some(Self(renderer)))
    }

    /// The template `text` of the file `path`, in which each special token, like `bos_token`, is a
    /// text. It is rendered in this process.
    ///
    /// # Errors
    /// The text is not valid Jinja.
    pub fn from_text(path: &Path, text: String, special_tokens: BTreeMap<String, String>) -> Result<Self> {
        let source = TemplateSource { path: path.to_owned(), text, special_tokens };
        Ok(Self(Renderer::Here(TemplateEngine::new(source)?)))
    }

    /// The text of a conversation, up to where the model's answer begins.
    ///
    /// # Errors
    /// What the template says against the conversation, or which limit it exceeds.
    pub(crate) fn render(&self, messages: &[ConversationTurn]) -> Result<String, String> {
        match &self.0 {
            Renderer::Here(engine) => engine.render(messages),
            Renderer::Process(process) => process.render(messages),
        }
    }
}

/// A template with the file that it is from, and the special tokens.
type FoundTemplate = (Option<(PathBuf, String)>, BTreeMap<String, String>);

fn from_folder(folder: &Path) -> Result<FoundTemplate> {
    let path = folder.join("tokenizer_config.json");
    let wrong = |reason: String| Error::input(reason).within(&path.display().to_string());
    let config = match read(&path)? {
        None => TokenizerConfig { chat_template: None, rest: BTreeMap::new() },
        Some(text) => serde_json::from_str(&text).map_err(|error| {
            wrong(format!("chat_template: a text, or a list of name and template, is wanted: {error}"))
        })?,
    };
    let special_tokens = config.rest.iter().filter_map(special_token).collect();
    let apart = folder.join("chat_template.jinja");
    if let Some(text) = read(&apart)? {
        return Ok((Some((apart, text)), special_tokens));
    }
    let text = match config.chat_template {
        None => return Ok((None, special_tokens)),
        Some(Templates::One(text)) => text,
        Some(Templates::Named(all)) => {
            let default = all.into_iter().find(|one| one.name == "default");
            default.ok_or_else(|| wrong("chat_template: none is named default".to_owned()))?.template
        }
    };
    Ok((Some((path, text)), special_tokens))
}

/// The text of a file, where it exists.
fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::input(error).within(&path.display().to_string())),
    }
}

/// A special token: `"<s>"` or `{"content": "<s>"}`.
fn special_token((key, value): (&String, &Value)) -> Option<(String, String)> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
    key.ends_with("_token").then(|| (key.clone(), text.to_owned()))
}

fn from_gguf(path: &Path, gguf: &Gguf) -> FoundTemplate {
    let text = gguf.text("tokenizer.chat_template");
    let tokens = gguf.list("tokenizer.ggml.tokens").unwrap_or_default();
    let special = |name: &str| {
        let id = gguf.metadata.get(&format!("tokenizer.ggml.{name}_token_id"))?.as_u64()?;
        let text = tokens.get(usize::try_from(id).ok()?)?.as_str()?;
        Some((format!("{name}_token"), text.to_owned()))
    };
    let special_tokens = ["bos", "eos"].into_iter().filter_map(special).collect();
    (text.map(|text| (path.to_owned(), text.to_owned())), special_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}
{% if message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no role ' + message.role) }}{% endif %}
<{{ message['role'] }}>{{ message['content'].strip() + '\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

    fn opened(files: &[(&str, &str)]) -> Result<Option<ChatTemplate>> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        ChatTemplate::open(folder.path(), None, None)
    }

    fn config(template: Value) -> String {
        json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null, "chat_template": template})
            .to_string()
    }

    #[test]
    fn a_template_is_found_in_each_of_its_places() {
        assert!(opened(&[]).expect("nothing is wrong").is_none());
        let none = config(Value::Null);
        assert!(opened(&[("tokenizer_config.json", &none)]).expect("nothing is wrong").is_none());
        let one = config(json!("a{{ eos_token }}"));
        let named = config(
            json!([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "a{{ eos_token }}"}]),
        );
        for (files, text) in [
            (vec![("tokenizer_config.json", &*one)], "a</s>"),
            (vec![("tokenizer_config.json", &*named)], "a</s>"),
            (vec![("tokenizer_config.json", &*named), ("chat_template.jinja", "b{{ bos_token }}")], "b<s>"),
        ] {
            let found = opened(&files).expect("valid").expect("a template");
            assert_eq!(found.render(&[]).expect("it renders"), text);
        }
    }

    #[test]
    fn a_conversation_is_written_as_its_template_says() {
        let template = opened(&[("tokenizer_config.json", &config(json!(TEMPLATE)))]);
        let template = template.expect("valid").expect("a template");
        let message = |role: &str, content: &str| ConversationTurn {
            role: role.to_owned(),
            content: content.to_owned(),
        };
        let all = [message("system", "short "), message("user", " why?")];
        let text = template.render(&all).expect("it renders");
        assert_eq!(text, "<s><system>short\n<user>why?\n<assistant>");
        let error = template.render(&[message("robot", "x")]).expect_err("it is refused");
        assert!(error.contains("no role robot"), "{error}");
    }

    #[test]
    fn a_template_that_never_ends_or_fills_the_memory_is_an_error() {
        let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        let large = "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}";
        for (text, wanted) in [(endless, "come to an end"), (large, "writes more than")] {
            let template = opened(&[("chat_template.jinja", text)]).expect("Jinja").expect("a template");
            let error = template.render(&[]).expect_err("it has a limit");
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_template_that_is_none_is_refused_with_its_file() {
        for text in
            ["{", "{\"chat_template\": 7}", "{\"chat_template\": []}", "{\"chat_template\": \"{% if\"}"]
        {
            let error = opened(&[("tokenizer_config.json", text)]).expect_err(text).to_string();
            assert!(error.contains("tokenizer_config.json"), "{error}");
        }
    }
}
