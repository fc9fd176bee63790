//! The commands shown in README.md and in the guide print what the pages say.
//!
//! A block that begins with ```` ```console ```` holds commands after `$ `, further lines of a
//! command after `> `, and the output. In the output `[..]` stands for any text within a line, and
//! a line `...` for any number of lines. The commands of a page share a folder.

use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Example {
    command: String,
    output: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn examples(page: &str) -> Vec<Example> {
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap_or(""));
    let mut examples: Vec<Example> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), examples.last_mut()) {
            (Some(command), _, _) => {
                examples.push(Example { command: command.to_owned(), output: Vec::new() });
            }
            (None, Some(more), Some(example)) if example.output.is_empty() => {
                example.command += "\n";
                example.command += more;
            }
            (None, _, Some(example)) => example.output.push(line.to_owned()),
            (None, _, None) => panic!("output before the first command: {line}"),
        }
    }
    examples
}

/// A pattern for the whole output.
fn pattern(lines: &[String]) -> Regex {
    let line = |line: &String| match line.as_str() {
        "..." => "(?:.*\n)*?".to_owned(),
        text => regex::escape(text).replace(r"\[\.\.\]", ".*") + "\n",
    };
    let pattern: String = lines.iter().map(line).collect();
    Regex::new(&format!("^{pattern}$")).expect("a valid pattern")
}

#[test]
fn commands_shown_print_what_the_pages_say() {
    let guide = fs::read_dir(root().join("docs/guide")).expect("the guide");
    let mut pages: Vec<_> = guide.map(|entry| entry.expect("a page").path()).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    let binary = Path::new(env!("CARGO_BIN_EXE_fulcrum")).parent().expect("a folder").display().to_string();
    let path = format!("{binary}:{}", std::env::var("PATH").unwrap_or_default());
    let mut run = 0;
    let mut complaints = Vec::new();
    for page in pages {
        let folder = tempfile::tempdir().expect("a folder");
        for Example { command, output } in examples(&fs::read_to_string(&page).expect("a page")) {
            let result = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &command])
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("COLUMNS", "100")
                .output()
                .expect("bash");
            let printed = String::from_utf8_lossy(&result.stdout);
            if !result.status.success() || !pattern(&output).is_match(&printed) {
                let errors = String::from_utf8_lossy(&result.stderr);
                complaints.push(format!("{}: $ {command}\n{printed}{errors}", page.display()));
            }
            run += 1;
        }
    }
    assert!(run > 10, "only {run} commands were found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
