//! What a shard's table is part of: a small file beside the table, which `fulcrum merge` reads.
//!
//! The table itself stays plain CSV. Without the stamp a missing last shard, a table of another sweep or a table that
//! was cut short could not be told from a whole one.

use crate::exit::{Outcome, Sort};
use anyhow::{Context, anyhow};
use hwprofiles::write_atomically;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Which part of which sweep a table is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardStamp {
    /// The identity of the whole sweep.
    pub sweep: String,
    /// From 0.
    pub shard: u64,
    /// How many shards the sweep has.
    pub of: u64,
    /// Rows of the table, without its header.
    pub rows: u64,
}

impl ShardStamp {
    /// The stamp's file: the table's name with `.shard` behind it.
    pub fn path(table: &Path) -> PathBuf {
        let mut name = OsString::from(table);
        name.push(".shard");
        PathBuf::from(name)
    }

    /// Writes it beside `table`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, table: &Path) -> anyhow::Result<()> {
        Ok(write_atomically(Self::path(table), serde_json::to_string(self)? + "\n")?)
    }

    /// Reads the stamp of `table`.
    ///
    /// # Errors
    /// It is missing or is no stamp; the error names the file.
    pub fn read(table: &Path) -> Outcome<Self> {
        let (path, name) = (Self::path(table), table.display());
        let text = std::fs::read_to_string(&path).map_err(|error| {
            anyhow!(
                "{}: {error}: `fulcrum sweep --shard` writes it beside {name}, and without it nobody knows which \
                 shard of which sweep the table is",
                path.display()
            )
        });
        let stamp = serde_json::from_str(&text.or_input()?);
        stamp
            .with_context(|| format!("{}: not what `fulcrum sweep --shard` writes", path.display()))
            .or_input()
    }
}
