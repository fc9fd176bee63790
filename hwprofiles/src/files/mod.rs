//! Documents and files: YAML in and out, CSV tables, atomic writes, errors that name a place, and
//! texts in lines.

mod atomic;
mod error;
mod hexadecimal;
mod input;
mod names;
mod presence;
mod refusal;
mod rows;
pub(crate) mod table;
mod wrapping;
pub mod yaml;

pub use atomic::{AtomicFile, WriteError, is_stream, write_atomically};
pub use error::ProfileError;
pub use hexadecimal::hexadecimal;
pub use input::{is_open_already, is_stdin, open_input, read_ahead, read_input, read_text};
pub use names::plain_name;
pub use presence::Presence;
pub(crate) use refusal::{Refusal, refuse_if};
pub use rows::{RowsError, TableRows};
pub(crate) use table::checked_table;
pub use wrapping::{TERMINAL_COLUMNS, number_ranges, wrapped};
pub(crate) use yaml::Entries;
pub use yaml::FileError;
