//! What the compiler does not check about the shape of the source: file and function lengths, where
//! `unsafe` and powers of ten live, which folder depends on which, and words that hide a lack of a noun.

use std::fs;
use std::path::{Path, PathBuf};

/// Dependencies point down only: a crate may use those that stand before it, where the design lets it.
const MAY_USE: &[(&str, &[&str])] = &[
    ("hwprofiles", &[]),
    ("kernels", &["hwprofiles"]),
    ("scenarios", &["hwprofiles"]),
    ("microbench", &["hwprofiles", "kernels"]),
    ("planner", &["hwprofiles", "scenarios"]),
    ("sim", &["hwprofiles", "scenarios", "planner"]),
    ("executor", &["hwprofiles", "scenarios", "planner", "kernels"]),
    ("reports", &["hwprofiles", "scenarios", "planner", "sim"]),
    ("cli", &["hwprofiles", "kernels", "scenarios", "microbench", "planner", "sim", "executor", "reports"]),
];

const MOST_LINES_PER_FILE: usize = 400;
const MOST_LINES_PER_FUNCTION: usize = 70;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file of the workspace's crates, with its path relative to the root.
fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (name, _) in MAY_USE {
        for part in ["src", "tests", "benches"] {
            collect(&root().join(name).join(part), &mut files);
        }
    }
    assert!(files.len() > 30, "the walk found only {} files: is the root right?", files.len());
    files.sort();
    let root = root();
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).expect("below the root").display().to_string();
            (name, fs::read_to_string(&path).expect("a readable source"))
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Lines of code proper: without the tests that close a file.
fn product(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

fn no_complaints(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn files_hold_one_noun() {
    let complaints: Vec<_> = sources()
        .iter()
        .map(|(name, text)| (name, product(text).lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES_PER_FILE)
        .map(|(name, lines)| format!("{name}: {lines} lines, at most {MOST_LINES_PER_FILE}"))
        .collect();
    no_complaints(&complaints);
}

#[test]
fn functions_fit_on_a_screen() {
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        let lines: Vec<_> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let is_function =
                ["fn ", "pub fn ", "pub(crate) fn ", "unsafe fn ", "pub unsafe fn ", "const fn "]
                    .iter()
                    .any(|word| code.starts_with(word));
            if !is_function {
                continue;
            }
            // rustfmt closes a function with a brace at the indentation of its first line.
            let close = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[start..].iter().take_while(|line| **line != close).count() + 1;
            if length > MOST_LINES_PER_FUNCTION && !code.ends_with(';') && !code.ends_with('}') {
                complaints.push(format!("{name}:{}: {length} lines", start + 1));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn unsafe_lives_in_kernels_alone() {
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        if name.ends_with("src/lib.rs") && !name.starts_with("kernels") {
            let forbids = text.contains("#![forbid(unsafe_code)]");
            if !forbids {
                complaints.push(format!("{name} must say #![forbid(unsafe_code)]"));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn powers_of_units_live_in_units_alone() {
    // Planner and simulator are where elements divided by bytes/s would be a number like any other.
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        let guarded = ["planner/src", "sim/src", "scenarios/src"].iter().any(|p| name.starts_with(p));
        // `laws.rs` is a test module in a file of its own.
        let guarded = guarded && !name.ends_with("/laws.rs");
        for (index, line) in product(&text).lines().enumerate().filter(|_| guarded) {
            let code = line.split("//").next().unwrap_or("");
            for literal in ["1e9", "1e6", "1e12", "1_000_000_000", "1073741824", "1 << 30", "1024.0"] {
                if code.contains(literal) {
                    complaints
                        .push(format!("{name}:{}: {literal} belongs in hwprofiles/src/units.rs", index + 1));
                }
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn folders_depend_downwards() {
    let mut complaints = Vec::new();
    for (name, allowed) in MAY_USE {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
        let normal = manifest.split("[dev-dependencies]").next().unwrap_or("");
        for (other, _) in MAY_USE.iter().filter(|(other, _)| !allowed.contains(other)) {
            let uses =
                |line: &str| line.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
            if normal.lines().any(uses) {
                complaints.push(format!("{name} must not depend on {other}"));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn no_file_is_named_after_nothing() {
    let empty = ["utils", "util", "common", "helpers", "helper", "manager", "misc"];
    let complaints: Vec<_> = sources()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| Path::new(name).file_stem().is_some_and(|stem| empty.iter().any(|word| stem == *word)))
        .collect();
    no_complaints(&complaints);
}

#[test]
fn nothing_is_left_unfinished_or_switched_off() {
    let words =
        [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"], ["allow(dead", "_code)"], ["FIX", "ME"]];
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        for word in words.map(|parts| parts.concat()) {
            for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains(&word)) {
                complaints.push(format!("{name}:{}: {word}", index + 1));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn every_dependency_is_declared_once() {
    let mut complaints = Vec::new();
    for (name, _) in MAY_USE {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
        let dependencies = manifest.split("dependencies]\n").skip(1).flat_map(|section| {
            section.lines().take_while(|line| !line.starts_with('[')).filter(|line| line.contains('='))
        });
        for line in dependencies.filter(|line| !line.contains("workspace")) {
            complaints
                .push(format!("{name}/Cargo.toml: `{line}` belongs in the root's [workspace.dependencies]"));
        }
    }
    no_complaints(&complaints);
}
