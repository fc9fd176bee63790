//! What a table of a sweep is: a small file beside it, which `fulcrum merge` and `fulcrum report`
//! read.
//!
//! The table itself stays plain CSV or Parquet. Without the stamp nobody could tell a missing last
//! shard, a table of another sweep, or one that was cut short or changed, from a whole one.

use crate::error::{Error, ErrorContext, OrError, Result};
use hwprofiles::{hexadecimal, write_atomically};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Which part of which sweep a table is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableStamp {
    /// The identity of the whole sweep.
    pub(crate) sweep: String,
    /// The shard, from 0.
    pub(crate) shard: u64,
    /// How many shards the sweep has; 1 where the table is whole.
    pub(crate) of: u64,
    /// Rows of the table, without its header.
    pub(crate) rows: u64,
    /// SHA-256 of the table's file.
    pub(crate) table: String,
}

/// A writer that knows the SHA-256 of what it has written.
pub(crate) struct DigestWriter<W> {
    to: W,
    digest: Sha256,
}

impl<W: Write> DigestWriter<W> {
    /// Writes to `to`.
    pub(crate) fn new(to: W) -> Self {
        Self { to, digest: Sha256::default() }
    }

    /// The digest, in hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        hexadecimal(&self.digest.finalize())
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl TableStamp {
    /// The stamp's file: the table's name with `.stamp` behind it.
    pub(crate) fn path(table: &Path) -> PathBuf {
        let mut name = OsString::from(table);
        name.push(".stamp");
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

    /// Reads the stamp of `table`; `None` where it has none.
    ///
    /// # Errors
    /// It cannot be read or is no stamp; the error names the file.
    pub(crate) fn find(table: &Path) -> Result<Option<Self>> {
        let path = Self::path(table);
        let text = match hwprofiles::read_text(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.or_input().within(|| path.display().to_string())?,
        };
        let stamp = serde_json::from_str(&text).or_input();
        stamp.map(Some).within(|| format!("{}: not what `fulcrum sweep` writes", path.display()))
    }

    /// Refuses `table`, of this digest and these rows, where it is not the one that was stamped.
    /// Whether there is a stamp: somebody's own table has none.
    ///
    /// # Errors
    /// Names the table, and says whether it was cut short or changed.
    pub(crate) fn check(table: &Path, digest: &str, rows: Option<u64>) -> Result<bool> {
        let Some(stamp) = Self::find(table)? else { return Ok(false) };
        match rows {
            _ if stamp.table == digest => Ok(true),
            Some(rows) if rows < stamp.rows => Err(stamp.cut_short(table, rows)),
            _ => Err(stamp.changed(table)),
        }
    }

    /// The error of a table with fewer rows.
    pub(crate) fn cut_short(&self, table: &Path, rows: u64) -> Error {
        let (name, stamp) = (table.display(), Self::path(table));
        Error::input(format!(
            "{name} has {rows} rows of {}: the table was cut short since it was written (remove {} if that was meant)",
            self.rows,
            stamp.display()
        ))
    }

    /// The error of a table with another digest.
    pub(crate) fn changed(&self, table: &Path) -> Error {
        let (name, stamp) = (table.display(), Self::path(table));
        Error::input(format!(
            "{name} has changed since it was written, its checksum is another: sweep again, or remove {} if the change \
             was meant",
            stamp.display()
        ))
    }
}
