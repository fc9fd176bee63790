//! Links between the documents.

use crate::workspace::{Workspace, root};
use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};

/// The relative links of README, its neighbours and the book that lead nowhere.
pub fn resolve(_: &Workspace) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)#\s]+)(?:#[^)]*)?\)").expect("a valid pattern");
    let mut complaints = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap_or_default();
        let folder = page.parent().unwrap_or(Path::new(""));
        let targets = link.captures_iter(&text).map(|found| found[1].to_owned());
        for target in targets.filter(|target| !target.contains("://")) {
            if !folder.join(&target).exists() {
                complaints.push(format!("{}: {target} leads nowhere", page.display()));
            }
        }
    }
    complaints
}

/// The Markdown files of the root and of `docs`.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![root()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() && (folder != root() || path.ends_with("docs")) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}
