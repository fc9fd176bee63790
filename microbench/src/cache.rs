//! How large the caches are, past which everything measured must lie.

use std::fs;
use std::path::Path;

/// Bytes of the largest cache of the core, 0 where `/sys` does not tell.
pub(crate) fn last_level_cache(root: &Path, core: usize) -> usize {
    let size = |index: usize| {
        let file = root.join(format!("sys/devices/system/cpu/cpu{core}/cache/index{index}/size"));
        let text = fs::read_to_string(file).ok()?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    };
    (0..8).filter_map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_level_cache_is_the_largest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last_level_cache(folder.path(), 0), 0);
        for (index, size) in ["32K", "32K", "1024K", "32768K"].iter().enumerate() {
            let cache = folder.path().join(format!("sys/devices/system/cpu/cpu0/cache/index{index}"));
            fs::create_dir_all(&cache).unwrap();
            fs::write(cache.join("size"), size).unwrap();
        }
        assert_eq!(last_level_cache(folder.path(), 0), 32 << 20);
    }
}
