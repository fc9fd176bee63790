//! The sizes of the processor's caches, which operands must exceed.

use std::fs;
use std::path::Path;

/// Bytes of the core's largest cache; 0 where `/sys` does not say.
pub(crate) fn last_level_cache(root: &Path, core: usize) -> usize {
    let size = |index: usize| {
        let file = root.join(format!("sys/devices/system/cpu/cpu{core}/cache/index{index}/size"));
        let text = fs::read_to_string(file).ok()?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    };
    (0..8).filter_map(size).max().unwrap_or(0)
}

/// Bytes of the core's second-level cache. Where `/sys` does not say, the smallest of all x86-64
/// server cores.
pub(crate) fn second_level_cache(root: &Path, core: usize) -> usize {
    let read = |index: usize, file: &str| {
        let file = root.join(format!("sys/devices/system/cpu/cpu{core}/cache/index{index}/{file}"));
        fs::read_to_string(file).ok()
    };
    let second = (0..8).find(|&index| read(index, "level").is_some_and(|level| level.trim() == "2"));
    let kib = second.and_then(|index| read(index, "size")?.trim().strip_suffix('K')?.parse::<usize>().ok());
    kib.unwrap_or(256) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_level_is_told_by_its_number_and_the_last_is_the_largest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last_level_cache(folder.path(), 0), 0);
        assert_eq!(second_level_cache(folder.path(), 0), 256 << 10);
        for (index, size) in ["32K", "32K", "1024K", "32768K"].iter().enumerate() {
            let cache = folder.path().join(format!("sys/devices/system/cpu/cpu0/cache/index{index}"));
            fs::create_dir_all(&cache).unwrap();
            fs::write(cache.join("size"), size).unwrap();
            fs::write(cache.join("level"), format!("{}\n", index.max(1))).unwrap();
        }
        assert_eq!(second_level_cache(folder.path(), 0), 1 << 20);
        assert_eq!(last_level_cache(folder.path(), 0), 32 << 20);
    }
}
