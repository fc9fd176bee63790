//! What happens where stdout or stderr cannot be written.

use crate::place::Place;
use std::process::{Command, Output};

const SCENARIO: &[u8] = b"machine: example-loopback
model: fulcrum-tiny
workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}
";

/// Runs `fulcrum ARGUMENTS` in a shell that redirects its output.
fn redirected(place: &Place, arguments: &str, redirection: &str) -> Output {
    let command = format!("'{}' {arguments} {redirection}", env!("CARGO_BIN_EXE_fulcrum"));
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", &command]).current_dir(place.path("."));
    shell.env("FULCRUM_HOME", place.path(".")).output().expect("the shell starts")
}

#[test]
fn a_full_stdout_is_a_failure_and_a_closed_pipe_is_none() {
    let place = Place::with(&[("s.yaml", SCENARIO), ("asked.jsonl", b"{\"tokens\": [1, 2]}\n")]);
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan s.yaml -o plan.yaml");
    let answer = "run plan.yaml --model-dir model --batch asked.jsonl";
    let text = "run plan.yaml --model-dir model --prompt lever";
    for arguments in ["plan s.yaml", "sim s.yaml --json", answer, text, "completions bash", "--help"] {
        let full = redirected(&place, arguments, "> /dev/full");
        let message = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(1), "{arguments}: {message}");
        assert!(message.contains("error: stdout cannot be written: No space left"), "{message}");
        let closed = redirected(&place, arguments, "| true");
        let message = String::from_utf8_lossy(&closed.stderr).into_owned();
        assert_eq!(closed.status.code(), Some(0), "{arguments}: {message}");
        assert!(!message.contains("error"), "{arguments}: {message}");
    }
}

#[test]
fn a_full_stderr_changes_no_exit_status() {
    let place = Place::with(&[("s.yaml", SCENARIO)]);
    assert_eq!(redirected(&place, "plan absent.yaml", "2> /dev/full").status.code(), Some(2));
    assert_eq!(
        redirected(&place, "plan s.yaml --set workload.batch=1", "2> /dev/full").status.code(),
        Some(0)
    );
    assert_eq!(redirected(&place, "no-such-command", "2> /dev/full").status.code(), Some(2));
    let logged = "RUST_LOG=info";
    let command = format!("{logged} '{}' plan s.yaml 2> /dev/full", env!("CARGO_BIN_EXE_fulcrum"));
    let output = Command::new("bash").args(["-c", &command]).current_dir(place.path(".")).output();
    assert_eq!(output.expect("the shell starts").status.code(), Some(0));
}
