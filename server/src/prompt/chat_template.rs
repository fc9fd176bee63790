//! How a model writes a conversation as one text.

use fulcrum::{Error, OrError, Result};
use minijinja::{Environment, Error as JinjaError, ErrorKind, Value as JinjaValue, syntax::SyntaxConfig};
use minijinja_contrib::pycompat::unknown_method_callback;
use scenarios::Gguf;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the one template.
const CHAT: &str = "chat";
/// Instructions that a template may take for a conversation. A template without end would stop all
/// connections; one of a long conversation takes some ten thousand.
const MOST_INSTRUCTIONS: u64 = 10_000_000;
/// The most bytes of a conversation's text: more than a body has, since a template writes around
/// its messages.
const MOST_BYTES: usize = 64 << 20;

/// The Jinja template of a model's conversations.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Special tokens as texts: `bos_token`, `eos_token` and others.
    special_tokens: BTreeMap<String, String>,
}

/// A message of a conversation.
#[derive(Debug, Clone)]
pub(crate) struct ConversationTurn {
    /// Who says it: `system`, `user`, `assistant`.
    pub(crate) role: String,
    /// What is said.
    pub(crate) content: String,
}

impl ConversationTurn {
    fn to_jinja(&self) -> JinjaValue {
        JinjaValue::from_pairs([("role", self.role.as_str()), ("content", self.content.as_str())])
    }
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
    /// # Errors
    /// A file cannot be read or is malformed, or the template is no Jinja.
    pub fn open(folder: &Path, file: Option<&Path>) -> Result<Option<Self>> {
        let (mut template, special_tokens) = match folder.is_file() {
            true => from_gguf(folder, &Gguf::open(folder).or_input()?),
            false => from_folder(folder)?,
        };
        if let Some(path) = file {
            let text =
                read(path)?.ok_or_else(|| Error::input(format!("{}: no such file", path.display())))?;
            template = Some((path.to_owned(), text));
        }
        template.map(|(path, text)| Self::from_text(&path, text, special_tokens)).transpose()
    }

    /// The template `text` of the file `path`, in which each special token, like `bos_token`, is a
    /// text.
    ///
    /// # Errors
    /// The text is no Jinja.
    pub fn from_text(path: &Path, text: String, special_tokens: BTreeMap<String, String>) -> Result<Self> {
        let mut environment = Environment::new();
        // As Hugging Face's transformers renders templates.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the usual marks"));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_fuel(Some(MOST_INSTRUCTIONS));
        environment.add_function("raise_exception", |reason: String| -> Result<String, JinjaError> {
            Err(JinjaError::new(ErrorKind::InvalidOperation, reason))
        });
        environment.add_template_owned(CHAT, text).map_err(|error| {
            let (line, detail) = (error.line().unwrap_or(1), error.detail().unwrap_or("wrong"));
            Error::input(format!("{}:{line}: no Jinja: {detail}", path.display()))
        })?;
        Ok(Self { environment, special_tokens })
    }

    /// The text of a conversation, up to where the model's answer begins.
    ///
    /// # Errors
    /// What the template says against the conversation.
    pub(crate) fn render(&self, messages: &[ConversationTurn]) -> Result<String, String> {
        let template = self.environment.get_template(CHAT).expect("it was added");
        let special_tokens =
            self.special_tokens.iter().map(|(key, text)| (key.as_str(), JinjaValue::from(text)));
        let keys = [
            ("messages", messages.iter().map(ConversationTurn::to_jinja).collect()),
            ("add_generation_prompt", JinjaValue::from(true)),
        ];
        let context: BTreeMap<&str, JinjaValue> = special_tokens.chain(keys).collect();
        let mut text = LimitedText(Vec::new());
        let rendered = template.render_captured_to(context, &mut text).map(drop);
        rendered.map_err(|error| match error.kind() {
            ErrorKind::OutOfFuel => "the template does not come to an end".to_owned(),
            ErrorKind::WriteFailure => format!("the template writes more than {MOST_BYTES} bytes"),
            _ => error.detail().unwrap_or(&error.to_string()).to_owned(),
        })?;
        Ok(String::from_utf8(text.0).expect("a template writes texts"))
    }
}

/// Takes at most [`MOST_BYTES`].
struct LimitedText(Vec<u8>);

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        ChatTemplate::open(folder.path(), None)
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
