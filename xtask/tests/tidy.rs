//! The workspace passes every check of its structure and words.

use xtask::{Workspace, reference, root, tidy};

#[test]
fn the_workspace_is_tidy() {
    let workspace = Workspace::read().expect("a workspace that can be read");
    let files = workspace.texts().count();
    assert!(files > 300, "the walk found only {files} files: is the root right?");
    let complaints: Vec<_> = tidy::CHECKS
        .iter()
        .flat_map(|check| (check.run)(&workspace).into_iter().map(|found| format!("{}: {found}", check.name)))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_reference_pages_are_those_of_the_code() {
    let workspace = Workspace::read().expect("a workspace that can be read");
    let differing = reference::refresh(&workspace, &root(), false).expect("types and tables in their places");
    assert!(differing.is_empty(), "run `cargo xtask reference`: {} differ", differing.join(", "));
}
