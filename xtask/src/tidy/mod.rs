//! The checks of structure and words.

mod dependencies;
mod imports;
mod links;
mod names;
mod rooms;
mod sizes;
mod words;

use crate::workspace::Workspace;

/// One check of the workspace.
pub struct Check {
    /// What is in order where the check has nothing to say.
    pub name: &'static str,
    /// Runs it: one line for each complaint.
    pub run: fn(&Workspace) -> Vec<String>,
}

/// All checks, in the order in which they are reported.
pub const CHECKS: &[Check] = &[
    Check { name: "crates depend downwards", run: dependencies::downwards },
    Check { name: "dependencies are declared once", run: dependencies::declared_once },
    Check { name: "unsafe code stays in kernels", run: dependencies::unsafe_in_kernels },
    Check { name: "powers of units stay in units", run: dependencies::powers_of_units },
    Check { name: "rooms use only rooms before them", run: rooms::order },
    Check { name: "files do not use each other in circles", run: rooms::circles },
    Check { name: "folders are small", run: sizes::folders },
    Check { name: "files hold one noun", run: sizes::files },
    Check { name: "functions fit on a screen", run: sizes::functions },
    Check { name: "names are the field's", run: names::everyday },
    Check { name: "a type name has one meaning", run: names::repeated },
    Check { name: "comments are narrow and plain", run: words::comments },
    Check { name: "links lead somewhere", run: links::resolve },
    Check { name: "nothing is unfinished or switched off", run: words::unfinished },
];
