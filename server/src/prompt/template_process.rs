//! Conversations that another process renders.
//!
//! A model's template is a stranger's program. Its instructions and the bytes that it writes are
//! counted, but one instruction may make a value of any size (`a ~ a`, `a | join`), even while the
//! template is parsed, and the engine has no limit for that. A process has limits of memory and of
//! time, and its end is the error of one conversation.

use super::template_engine::{ConversationTurn, TemplateEngine, TemplateSource};
use fulcrum::{Error, OrError, Result};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The most memory of the process, its program and all that it reserves included.
const MOST_MEMORY: u64 = 2 << 30;
/// The most seconds of a processor that a conversation takes.
const MOST_SECONDS: u64 = 5;

/// A program that calls [`render_conversations`].
#[derive(Debug, Clone)]
pub struct TemplateProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A template that a process of its own renders.
#[derive(Debug)]
pub(crate) struct TemplateProcess {
    program: TemplateProgram,
    source: TemplateSource,
    /// The process, unless its last conversation has ended it.
    running: Mutex<Option<RunningProcess>>,
}

#[derive(Debug)]
struct RunningProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl TemplateProcess {
    /// Starts the process and lets it read the template.
    ///
    /// # Errors
    /// The program does not start, or the template is not valid Jinja.
    pub(crate) fn start(program: TemplateProgram, source: TemplateSource) -> Result<Self> {
        let running = RunningProcess::start(&program, &source).map_err(Error::input)?;
        Ok(Self { program, source, running: Mutex::new(Some(running)) })
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// What the template says against the conversation, or which limit it exceeds.
    pub(crate) fn render(&self, messages: &[ConversationTurn]) -> Result<String, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut process = match running.take() {
            Some(process) => process,
            None => RunningProcess::start(&self.program, &self.source)?,
        };
        match process.ask(messages) {
            Ok(answer) => {
                *running = Some(process);
                answer
            }
            Err(_) => Err(process.end()),
        }
    }
}

impl RunningProcess {
    fn start(
        TemplateProgram { program, arguments }: &TemplateProgram,
        source: &TemplateSource,
    ) -> Result<Self, String> {
        let mut command = Command::new(program);
        // A group of its own: an interrupt of the server ends it when the server has ended.
        command.args(arguments).process_group(0);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = piped.map_err(|error| format!("{}: {error}", program.display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes");
        };
        let mut process = Self { child, to, from: BufReader::new(from) };
        match process.ask::<_, ()>(source) {
            Ok(read) => read.map(|()| process),
            Err(_) => Err(format!("{}: {}", source.path.display(), process.end())),
        }
    }

    /// Sends a line and takes the answer.
    fn ask<Q: Serialize + ?Sized, A: DeserializeOwned>(
        &mut self,
        question: &Q,
    ) -> io::Result<Result<A, String>> {
        write_line(&mut self.to, question)?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Why a process that does not answer has ended.
    fn end(mut self) -> String {
        let _ = self.child.kill();
        match self.child.wait().ok().and_then(|status| status.signal()) {
            Some(signal) if signal == Signal::XCPU.as_raw() => {
                format!("the template takes more than {MOST_SECONDS} seconds")
            }
            Some(signal) if signal == Signal::ABORT.as_raw() => {
                format!("the template needs more than {} GiB of memory", MOST_MEMORY >> 30)
            }
            _ => "the process that renders the template has ended".to_owned(),
        }
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Renders conversations for a server: reads a template, then a conversation a line, and answers
/// each with a line. Ends with `input`. It limits the memory and the time of this process.
///
/// # Errors
/// A line is malformed, or cannot be written.
pub fn render_conversations(input: impl BufRead, mut output: impl Write) -> Result {
    limit(Resource::As, MOST_MEMORY).or_failed()?;
    limit(Resource::Core, 0).or_failed()?;
    let mut lines = input.lines();
    let Some(first) = lines.next() else { return Ok(()) };
    allow_seconds().or_failed()?;
    let engine = TemplateEngine::new(serde_json::from_str(&first.or_failed()?).or_input()?);
    write_line(&mut output, &engine.as_ref().map(drop).map_err(Error::to_string)).or_failed()?;
    let engine = engine?;
    for line in lines {
        allow_seconds().or_failed()?;
        let messages: Vec<ConversationTurn> = serde_json::from_str(&line.or_failed()?).or_input()?;
        write_line(&mut output, &engine.render(&messages)).or_failed()?;
    }
    Ok(())
}

/// Allows what comes [`MOST_SECONDS`] beyond the time that this process has taken.
fn allow_seconds() -> io::Result<()> {
    let taken = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    limit(Resource::Cpu, taken + 1 + MOST_SECONDS)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    Ok(setrlimit(resource, Rlimit { current: Some(most.min(maximum.unwrap_or(u64::MAX))), maximum })?)
}

fn write_line<T: Serialize + ?Sized>(to: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}
