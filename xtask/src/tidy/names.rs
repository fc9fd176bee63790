//! Names that say what a thing is, one name for one thing.

use crate::workspace::Workspace;
use regex::Regex;
use std::collections::BTreeMap;

/// Everyday words that once named types here. A longer name may hold one.
const TYPES: &str = "Asked Habits Spoken Speech Beside Dishes Liked Homed Half Lot Way Ways Outlook Followed Seen \
     Pace Twins Sides Upkeep Tried Bought Going More Chosen Said Shifted Staged Look Made Moment Counts Contents Race";

/// The same for files and folders, and the names that say nothing at all.
const MODULES: &str = "asked spoken speech going more tried ways sides half home homed twins upkeep walk beside course \
     outlook followed part stack moved space bought feed lines live whole described seen moments line shifted staged \
     race utils util common helpers helper manager misc";

/// Folders of public rooms whose word is the field's.
const ALLOWED: &[&str] = &["fulcrum/src/live"];

const MOST_REPEATED: usize = 40;

pub fn everyday(workspace: &Workspace) -> Vec<String> {
    let functions = Regex::new(r"\bfn (of|what|who|whose|more|aloud|apart)\b").expect("a valid pattern");
    let types = type_names(workspace);
    let mut complaints: Vec<_> = TYPES
        .split_whitespace()
        .filter_map(|word| types.get(word).map(|paths| format!("type {word} in {}", paths.join(", "))))
        .collect();
    for file in workspace.sources() {
        if let Some(word) =
            file.module.iter().find(|name| MODULES.split_whitespace().any(|word| word == *name))
            && !ALLOWED.iter().any(|folder| file.path.starts_with(folder))
        {
            complaints.push(format!("{}: module {word}", file.path));
        }
        let found = functions.captures_iter(&file.text).map(|c| format!("{}: function {}", file.path, &c[1]));
        complaints.extend(found);
    }
    complaints
}

pub fn repeated(workspace: &Workspace) -> Vec<String> {
    let types = type_names(workspace);
    let repeated: Vec<_> = types.into_iter().filter(|(_, paths)| paths.len() > 1).collect();
    if repeated.len() <= MOST_REPEATED {
        return Vec::new();
    }
    repeated.into_iter().map(|(name, paths)| format!("type {name} in {}", paths.join(", "))).collect()
}

/// The types that a module shows to others, with the files that define one of that name.
fn type_names(workspace: &Workspace) -> BTreeMap<String, Vec<String>> {
    let pattern = r"(?m)^\s*pub(?:\([a-z ]+\))? (?:struct|enum|trait|type) (\w+)";
    let pattern = Regex::new(pattern).expect("a valid pattern");
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in workspace.sources() {
        for found in pattern.captures_iter(&file.text) {
            types.entry(found[1].to_owned()).or_default().push(file.path.clone());
        }
    }
    types
}
