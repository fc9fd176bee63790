//! What keeps the workspace in order. `cargo xtask` lists the commands.
//!
//! Rooms, each using only those before it: workspace, tidy, reference.
#![forbid(unsafe_code)]

pub mod reference;
pub mod tidy;
mod workspace;

pub use workspace::{Crate, SourceFile, Workspace, root};
