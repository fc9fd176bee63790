//! The reference pages of the book and the schema of machine files, generated from the code.

mod machine;
mod scenario;
mod schema;

use crate::workspace::Workspace;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// A file that follows from the code.
pub struct Page {
    /// Its path below the workspace's root.
    pub path: &'static str,
    /// Its text, as the code has it now.
    pub text: String,
}

/// The pages that follow from the source alone. The page of commands needs the built command; a
/// test of `cli` writes and checks it.
///
/// # Errors
/// A type or a table that is no longer where the generator looks for it.
pub fn pages(workspace: &Workspace) -> Result<Vec<Page>> {
    Ok(vec![
        Page { path: "docs/reference/scenario.md", text: scenario::page(workspace)? },
        Page { path: "docs/reference/machine.md", text: machine::page(workspace)? },
        Page { path: "hwprofiles/machine.schema.json", text: schema::text(workspace)? },
    ])
}

/// The pages that differ from the files below `root`, after writing them where `write` says so.
///
/// # Errors
/// Those of [`pages`], and a file that cannot be written.
pub fn refresh(workspace: &Workspace, root: &Path, write: bool) -> Result<Vec<&'static str>> {
    let mut differing = Vec::new();
    for Page { path, text } in pages(workspace)? {
        let file = root.join(path);
        if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            differing.push(path);
            if write {
                fs::write(&file, text)?;
            }
        }
    }
    Ok(differing)
}

/// A value of a table's cell: without line ends, and with bars that do not end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
