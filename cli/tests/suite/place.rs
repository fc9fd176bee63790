//! A folder of its own for each test, and the command that runs in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The folder.
pub struct Place(tempfile::TempDir);

impl Place {
    /// A folder that holds these files: name and text.
    pub fn with(files: &[(&str, &[u8])]) -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary folder"));
        files.iter().for_each(|(name, text)| fs::write(place.path(name), text).expect("written"));
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command, not yet started, in the folder.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fulcrum"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .env("FULCRUM_HOME", self.0.path());
        command
    }

    /// Runs the command in the folder.
    pub fn fulcrum(&self, arguments: &str) -> Output {
        self.command(arguments).output().expect("the command starts")
    }

    /// Runs a command that must succeed: its stdout and its stderr.
    pub fn outputs(&self, arguments: &str) -> (String, String) {
        let output = self.fulcrum(arguments);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "fulcrum {arguments}: {err}");
        (out, err)
    }

    /// Runs a command that must succeed: its stdout.
    pub fn stdout(&self, arguments: &str) -> String {
        self.outputs(arguments).0
    }

    /// Runs a command that must fail with this exit status, with one error that has each of the
    /// words, and without a result. Nothing in the folder may change.
    pub fn refused(&self, arguments: &str, status: i32, words: &[&str]) -> String {
        let before = self.files();
        let output = self.fulcrum(arguments);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "fulcrum {arguments}: {message}");
        let begins = if arguments.contains("--json") { "{\"error\":" } else { "error: " };
        assert_eq!(message.matches(begins).count(), 1, "one error: {message}");
        assert!(!message.contains("panicked"), "{message}");
        for word in words {
            assert!(message.contains(word), "fulcrum {arguments} should mention {word:?}: {message}");
        }
        assert_eq!(self.files(), before, "fulcrum {arguments} must leave everything as it was");
        assert!(output.stdout.is_empty(), "no result where there is none");
        message
    }

    fn files(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let entries =
            fs::read_dir(self.0.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
        let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).ok())).collect();
        files.sort();
        files
    }
}
