//! What keeps the workspace in order. `cargo xtask` lists the commands.
//!
//! Rooms, each using only those before it: workspace, tidy.
#![forbid(unsafe_code)]

pub mod tidy;
mod workspace;

pub use workspace::{Crate, SourceFile, Workspace};
