//! Documents and files: YAML in and out, CSV tables, atomic writes, and errors that name a place.

mod atomic;
mod error;
mod input;
mod names;
mod presence;
mod refusal;
mod rows;
pub(crate) mod table;
pub mod yaml;

pub use atomic::{AtomicFile, WriteError, is_stream, write_atomically};
pub use error::ProfileError;
pub use input::{is_stdin, open_input, read_input, read_text};
pub use names::plain_name;
pub use presence::Presence;
pub(crate) use refusal::{Refusal, refuse_if};
pub use rows::{RowsError, TableRows};
pub(crate) use table::checked_table;
pub(crate) use yaml::Entries;
pub use yaml::FileError;
