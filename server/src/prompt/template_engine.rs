//! The engine of conversations' templates.

use fulcrum::{Error, Result};
use minijinja::{Environment, Error as JinjaError, ErrorKind, Value as JinjaValue, syntax::SyntaxConfig};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The name of the one template.
const CHAT: &str = "chat";
/// Instructions that a template may take for a conversation. A template without end would stop all
/// connections; one of a long conversation takes some ten thousand. A fuzzer has no process around
/// the engine that ends where its memory or its time does, so it goes less far.
const MOST_INSTRUCTIONS: u64 = if cfg!(fuzzing) { 100_000 } else { 10_000_000 };
/// The most bytes of a conversation's text: more than a body has, since a template writes around
/// its messages.
const MOST_BYTES: usize = 64 << 20;

/// A template as it was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TemplateSource {
    /// Its file.
    pub(crate) path: PathBuf,
    /// The Jinja.
    pub(crate) text: String,
    /// Special tokens as texts: `bos_token`, `eos_token` and others.
    pub(crate) special_tokens: BTreeMap<String, String>,
}

/// A message of a conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// A template that renders conversations in this process.
#[derive(Debug)]
pub(crate) struct TemplateEngine {
    environment: Environment<'static>,
    special_tokens: BTreeMap<String, String>,
}

impl TemplateEngine {
    /// # Errors
    /// The text is not valid Jinja.
    pub(crate) fn new(source: TemplateSource) -> Result<Self> {
        let TemplateSource { path, text, special_tokens } = source;
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
