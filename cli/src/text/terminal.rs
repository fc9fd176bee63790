//! The terminal: results on stdout, diagnostics and progress on stderr.

use fulcrum::{ProgressEvent, TaskStage};
use hwprofiles::{TERMINAL_COLUMNS, wrapped};
use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether a file that is written is stdout.
static STDOUT_IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// Makes results go to stderr: a file of the command is stdout.
pub fn give_stdout_away() {
    STDOUT_IS_A_FILE.store(true, Ordering::Relaxed);
}

/// Writes a result to stdout and flushes it. See [`check`] for what happens when that fails.
pub fn result(text: fmt::Arguments<'_>) {
    match STDOUT_IS_A_FILE.load(Ordering::Relaxed) {
        true => diagnostic(text),
        false if io::stdout().is_terminal() => print(visible(&text.to_string()).as_bytes()),
        false => print(text.to_string().as_bytes()),
    }
}

/// The text with every character that would steer a terminal, or turn the order of what follows,
/// written as its number. Names come from files of strangers.
fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// The same for text that may not be UTF-8.
pub fn print(text: &[u8]) {
    let mut stdout = io::stdout().lock();
    check(stdout.write_all(text).and_then(|()| stdout.flush()));
}

/// Ends the program if stdout could not be written: with success if the reader closed the pipe
/// (`| head`), because it has read enough, and with exit status 1 and a message otherwise.
pub fn check(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            diagnostic(format_args!("error: stdout cannot be written: {error}\n"));
            process::exit(1);
        }
    }
}

/// `text` in bold where stdout is a terminal that shows it: not in a pipe, and not with `NO_COLOR`
/// or a terminal that calls itself dumb.
pub fn strong(text: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
        || !io::stdout().is_terminal();
    if plain { text.to_owned() } else { format!("\x1b[1m{text}\x1b[0m") }
}

/// Writes to stderr. Nobody can be told that stderr cannot be written, so an error is ignored.
pub fn diagnostic(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(visible(&text.to_string()).as_bytes());
}

/// `print!` by [`result`].
macro_rules! out {
    ($($text:tt)*) => { $crate::text::terminal::result(format_args!($($text)*)) };
}

/// `println!` by [`result`].
macro_rules! outln {
    ($($text:tt)*) => {
        $crate::text::terminal::result(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// `eprint!` by [`diagnostic`].
macro_rules! err {
    ($($text:tt)*) => { $crate::text::terminal::diagnostic(format_args!($($text)*)) };
}

/// `eprintln!` by [`diagnostic`].
macro_rules! errln {
    ($($text:tt)*) => {
        $crate::text::terminal::diagnostic(format_args!("{}\n", format_args!($($text)*)))
    };
}

pub(crate) use {err, errln, out, outln};

/// Prints any value as indented JSON.
macro_rules! out_json {
    ($value:expr) => {{
        let text = fulcrum::OrError::or_failed(serde_json::to_string_pretty($value))?;
        $crate::text::terminal::result(format_args!("{text}\n"))
    }};
}

pub(crate) use out_json;

/// What a task tells while it runs: notes as lines, a progress bar where stderr is a terminal, and
/// at the end all warnings in one paragraph.
#[derive(Debug, Default)]
pub struct ProgressDisplay {
    bar: Mutex<Option<ProgressBar>>,
    warnings: Mutex<Vec<String>>,
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        let warnings = self.warnings.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !warnings.is_empty() {
            errln!("{}", folded(warnings));
        }
    }
}

/// All warnings in one paragraph: the first two in full, since many are alike.
pub fn folded(warnings: &[String]) -> String {
    let text = match warnings {
        [one] => format!("warning: {one}"),
        [one, two] => format!("2 warnings: {one}; {two}"),
        [one, two, more @ ..] => {
            format!("{} warnings: {one}; {two}; and {} more", warnings.len(), more.len())
        }
        [] => String::new(),
    };
    wrapped("", &text, 2, TERMINAL_COLUMNS).join("\n")
}

impl ProgressDisplay {
    /// Shows an event.
    pub fn show(&self, event: ProgressEvent<'_>) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        match (event, &*bar) {
            (ProgressEvent::Begin(stage), _) => *bar = Some(new_bar(stage)),
            (ProgressEvent::Steps { done, of }, Some(bar)) => {
                if bar.length() != Some(of) {
                    bar.set_length(of);
                    bar.set_position(done);
                    bar.reset_eta();
                }
                bar.set_position(done);
            }
            (ProgressEvent::Item(item), Some(bar)) => bar.set_message(visible(item).into_owned()),
            (ProgressEvent::End, Some(bar)) => bar.finish_and_clear(),
            (ProgressEvent::Note(note), _) => errln!("note: {note}"),
            (ProgressEvent::Warning(warning), _) => {
                let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
                warnings.push(warning.to_owned());
            }
            (_, None) => {}
        }
    }
}

fn new_bar(stage: TaskStage) -> ProgressBar {
    let (prefix, template) = match stage {
        TaskStage::Measuring => ("measuring", STEPS),
        TaskStage::MakingModel => ("making", STEPS),
        TaskStage::Planning => ("planning", STEPS),
        TaskStage::Running => ("running", STEPS),
        TaskStage::Sweeping => ("sweeping", "{wide_bar} {pos}/{len} points, {per_sec}, {eta} left"),
    };
    let style = ProgressStyle::with_template(template).expect("a constant template is valid");
    let style = if template == STEPS { style.progress_chars("=> ") } else { style };
    ProgressBar::new(0).with_style(style).with_prefix(prefix)
}

/// The bar of a stage with a few long steps.
const STEPS: &str = "{prefix:10} [{bar:24}] {pos}/{len}, {eta} left {wide_msg}";

/// Today in UTC, `YYYY-MM-DD`.
pub fn today() -> String {
    date_of(jiff::Timestamp::now())
}

fn date_of(time: jiff::Timestamp) -> String {
    time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(super::visible("a\u{1b}[2J\u{7}b\n\tc\u{202e}d"), "a\\u{1b}[2J\\u{7}b\n\tc\\u{202e}d");
        assert_eq!(super::visible("naïve 平衡\n"), "naïve 平衡\n");
    }

    #[test]
    fn warnings_are_one_paragraph_that_fits_a_terminal() {
        let warnings = ["noisy", "short"].map(str::to_owned);
        assert_eq!(super::folded(&warnings[..1]), "warning: noisy");
        assert_eq!(super::folded(&warnings), "2 warnings: noisy; short");
        let many = ["noisy", "short", "warm", "late"].map(str::to_owned);
        assert_eq!(super::folded(&many), "4 warnings: noisy; short; and 2 more");
        let long = ["the runs of a kernel spread widely, ", "another program uses the processor "]
            .map(|it| it.repeat(2));
        let lines = super::folded(&long);
        assert!(lines.lines().count() > 1 && lines.lines().all(|line| line.len() <= 80), "{lines}");
    }

    #[test]
    fn dates_are_written_year_first() {
        let date = |day: i64| super::date_of(jiff::Timestamp::from_second(day * 86_400).expect("a time"));
        assert_eq!([date(0), date(20_778)], ["1970-01-01", "2026-11-21"]);
    }
}
