//! The memory modules that a machine's firmware lists (SMBIOS, structures of type 17).

use std::fs;
use std::path::Path;

/// The modules of a machine: they are of one kind, or the slowest counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledModules {
    /// How many.
    pub count: u64,
    /// What they are: `DDR5`.
    pub kind: &'static str,
    /// Millions of transfers per second, as they are configured.
    pub rate: u64,
}

/// The modules that the tables under `root` list; `None` where they cannot be read, which takes
/// the rights of an administrator, or list none.
pub(crate) fn installed_modules(root: &Path) -> Option<InstalledModules> {
    modules_of(&fs::read(root.join("sys/firmware/dmi/tables/DMI")).ok()?)
}

fn modules_of(mut table: &[u8]) -> Option<InstalledModules> {
    let mut all: Option<InstalledModules> = None;
    while let [number, length, ..] = *table {
        let structure = table.get(..usize::from(length))?;
        if number == 17
            && let Some((kind, rate)) = module(structure)
        {
            let known = all.get_or_insert(InstalledModules { count: 0, kind, rate });
            (known.count, known.rate) = (known.count + 1, known.rate.min(rate));
        }
        // Texts follow each structure, and two zeros end them.
        let texts = &table[usize::from(length)..];
        let end = texts.windows(2).position(|pair| pair == [0, 0])?;
        table = &texts[end + 2..];
    }
    all
}

/// The kind and the rate of one slot; `None` where it is empty.
fn module(structure: &[u8]) -> Option<(&'static str, u64)> {
    let word = |at: usize| Some(u16::from_le_bytes([*structure.get(at)?, *structure.get(at + 1)?]));
    let size = word(0x0C)?;
    let kind = match structure.get(0x12)? {
        0x1A => "DDR4",
        0x1E => "LPDDR4",
        0x22 => "DDR5",
        0x23 => "LPDDR5",
        _ => return None,
    };
    let configured = word(0x20).filter(|rate| *rate > 0);
    let rate = configured.or(word(0x15)).filter(|rate| *rate > 0 && *rate < u16::MAX)?;
    (size > 0).then_some((kind, u64::from(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(size: u16, kind: u8, rate: u16, configured: u16) -> Vec<u8> {
        let mut bytes = vec![0; 0x22];
        (bytes[0], bytes[1], bytes[0x12]) = (17, 0x22, kind);
        bytes[0x0C..0x0E].copy_from_slice(&size.to_le_bytes());
        bytes[0x15..0x17].copy_from_slice(&rate.to_le_bytes());
        bytes[0x20..0x22].copy_from_slice(&configured.to_le_bytes());
        bytes.extend(b"DIMM A\0Maker\0\0");
        bytes
    }

    #[test]
    fn populated_slots_are_counted_at_the_rate_that_is_configured() {
        let other = [1, 4, 0, 0, 0, 0].to_vec();
        let table = [other, slot(32767, 0x22, 6000, 5200), slot(0, 0x22, 0, 0), slot(32767, 0x22, 6000, 0)];
        let found = modules_of(&table.concat()).expect("modules");
        assert_eq!(found, InstalledModules { count: 2, kind: "DDR5", rate: 5200 });
    }

    #[test]
    fn a_table_that_ends_early_lists_nothing() {
        assert_eq!(modules_of(&[17, 0x22, 0]), None);
        assert_eq!(modules_of(&[]), None);
        assert_eq!(installed_modules(Path::new("/nowhere")), None);
    }
}
