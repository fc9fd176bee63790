//! Memory modules, as people write them: `8x DDR5-5600`.

use crate::units::BytesPerSec;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The bytes of one transfer of a channel.
const OF_A_TRANSFER: f64 = 8.0;

/// Modules of one kind, each 64 bits wide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemoryModules {
    /// How many.
    pub count: u64,
    /// What they are: `DDR5`.
    pub kind: String,
    /// Millions of transfers per second.
    pub rate: u64,
}

impl MemoryModules {
    /// The peak of a board with so many channels: channels in use × transfers per second × 8 bytes.
    /// Modules beyond the channels share them.
    pub fn peak(&self, channels: Option<u64>) -> BytesPerSec {
        let used = channels.map_or(self.count, |channels| channels.min(self.count));
        BytesPerSec::new(used as f64 * self.rate as f64 * 1e6 * OF_A_TRANSFER)
    }
}

impl FromStr for MemoryModules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = || {
            let (count, kind) = text.split_once(['x', '×', 'X'])?;
            let (kind, rate) = kind.trim().rsplit_once('-')?;
            let is_kind = !kind.is_empty() && kind.chars().all(char::is_alphanumeric);
            Some((count.trim().parse().ok()?, is_kind.then(|| kind.to_owned())?, rate.parse().ok()?))
        };
        match parts() {
            Some((count @ 1.., kind, rate @ 1..)) => Ok(Self { count, kind, rate }),
            _ => {
                Err(format!("'{text}' names no modules: write their number, kind and speed, as 8x DDR5-5600"))
            }
        }
    }
}

impl TryFrom<String> for MemoryModules {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<MemoryModules> for String {
    fn from(modules: MemoryModules) -> Self {
        modules.to_string()
    }
}

impl fmt::Display for MemoryModules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x {}-{}", self.count, self.kind, self.rate)
    }
}
