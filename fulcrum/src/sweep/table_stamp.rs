//! Which shard of which sweep a table is: a small file beside the table, which `fulcrum merge`
//! reads.
//!
//! The table itself stays plain CSV. Without the stamp nobody could tell a missing last shard, a
//! table of another sweep, or one that was cut short or changed, from a whole one.

use crate::error::{Error, ErrorContext, OrError, Result};
use hwprofiles::write_atomically;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Which part of which sweep a table is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardStamp {
    /// The identity of the whole sweep.
    pub(crate) sweep: String,
    /// The shard, from 0.
    pub(crate) shard: u64,
    /// How many shards the sweep has.
    pub(crate) of: u64,
    /// Rows of the table, without its header.
    pub(crate) rows: u64,
    /// The digest of the table's lines.
    pub(crate) table: String,
}

/// The SHA-256 of lines, each with its end: that of a text file that holds them.
#[derive(Debug, Default)]
pub(crate) struct LineDigest(Sha256);

impl LineDigest {
    /// Adds a line without its end.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.0.update(line);
        self.0.update(b"\n");
    }

    /// The digest, in hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ShardStamp {
    /// The stamp's file: the table's name with `.shard` behind it.
    pub(crate) fn path(table: &Path) -> PathBuf {
        let mut name = OsString::from(table);
        name.push(".shard");
        PathBuf::from(name)
    }

    /// Writes the stamp beside `table`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, table: &Path) -> Result<()> {
        let text = serde_json::to_string(self).or_failed()? + "\n";
        write_atomically(Self::path(table), text).or_failed()
    }

    /// Reads the stamp of `table`.
    ///
    /// # Errors
    /// It is missing or is no stamp; the error names the file.
    pub(crate) fn read(table: &Path) -> Result<Self> {
        let (path, name) = (Self::path(table), table.display());
        let text = hwprofiles::read_text(&path).map_err(|error| {
            Error::input(format!(
                "{}: {error}: `fulcrum sweep --shard` writes it beside {name}, and without it nobody knows which \
                 shard of which sweep the table is",
                path.display()
            ))
        });
        let stamp = serde_json::from_str(&text?).or_input();
        stamp.within(|| format!("{}: not what `fulcrum sweep --shard` writes", path.display()))
    }
}
