//! Comments that readers stumble over, and code that was left unfinished.

use crate::workspace::Workspace;
use regex::Regex;

const WIDEST_COMMENT: usize = 100;

/// Turns that were common here and that nobody parses at first reading.
const RIDDLES: &str = r"(?i)\b(so-manieth|of who\b|who that\b|of whose\b|what of the|of which a\b|what .{1,30} of which|whose last|is not all there|who was sent|those that it is)";

pub fn comments(workspace: &Workspace) -> Vec<String> {
    let riddles = Regex::new(RIDDLES).expect("a valid pattern");
    let mut complaints = Vec::new();
    for (path, text) in workspace.texts() {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"))
        {
            let width = line.chars().count();
            if width > WIDEST_COMMENT {
                complaints.push(format!("{path}:{}: {width} columns, at most {WIDEST_COMMENT}", index + 1));
            }
            if let Some(found) = riddles.find(line) {
                complaints.push(format!("{path}:{}: \"{}\": say it plainly", index + 1, found.as_str()));
            }
        }
    }
    complaints
}

pub fn unfinished(workspace: &Workspace) -> Vec<String> {
    // In two parts each, so that this file is not a find of its own.
    let words =
        [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"], ["allow(dead", "_code)"], ["FIX", "ME"]];
    let mut complaints = Vec::new();
    for (path, text) in workspace.texts() {
        for word in words.map(|parts| parts.concat()) {
            for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains(&word)) {
                complaints.push(format!("{path}:{}: {word}", index + 1));
            }
        }
    }
    complaints
}
