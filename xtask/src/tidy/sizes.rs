//! Limits that keep folders, files and functions readable.

use crate::workspace::Workspace;
use std::collections::BTreeMap;

const MOST_FILES_PER_FOLDER: usize = 16;
/// A folder of commands is a list that readers search by name.
const MOST_COMMANDS: usize = 24;
const MOST_LINES_PER_FILE: usize = 600;
const MOST_LINES_PER_FUNCTION: usize = 70;

pub fn folders(workspace: &Workspace) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in workspace.sources() {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *counts.entry(folder).or_default() += 1;
    }
    let most =
        |folder: &str| if folder.ends_with("/commands") { MOST_COMMANDS } else { MOST_FILES_PER_FOLDER };
    counts
        .into_iter()
        .filter(|&(folder, count)| count > most(folder))
        .map(|(folder, count)| format!("{folder} holds {count} files, at most {}", most(folder)))
        .collect()
}

pub fn files(workspace: &Workspace) -> Vec<String> {
    workspace
        .sources()
        .map(|file| (&file.path, file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or("")))
        .map(|(path, product)| (path, product.lines().count()))
        .filter(|&(_, lines)| lines > MOST_LINES_PER_FILE)
        .map(|(path, lines)| format!("{path}: {lines} lines, at most {MOST_LINES_PER_FILE}"))
        .collect()
}

pub fn functions(workspace: &Workspace) -> Vec<String> {
    let starts =
        ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "unsafe fn ", "pub unsafe fn ", "const fn "];
    let mut complaints = Vec::new();
    for (path, text) in workspace.texts() {
        let lines: Vec<_> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            if !starts.iter().any(|word| code.starts_with(word)) {
                continue;
            }
            // rustfmt closes a function with a brace at the indentation of its first line.
            let close = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[start..].iter().take_while(|line| **line != close).count() + 1;
            if length > MOST_LINES_PER_FUNCTION && !code.ends_with(';') && !code.ends_with('}') {
                complaints
                    .push(format!("{path}:{}: {length} lines, at most {MOST_LINES_PER_FUNCTION}", start + 1));
            }
        }
    }
    complaints
}
