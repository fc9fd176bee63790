//! The cores nearest to a GPU. Memory that they touch first belongs to their socket.

use std::fs;
use std::path::Path;

/// The cores of `available` on the NUMA node of the device at `bus` (`0000:17:00.0`); none where
/// the system does not say.
pub(super) fn near_cores(root: &Path, bus: &str, available: &[usize]) -> Vec<usize> {
    let node = fs::read_to_string(root.join("sys/bus/pci/devices").join(bus).join("numa_node"));
    // −1 means no node.
    let Some(node) = node.ok().and_then(|node| node.trim().parse::<usize>().ok()) else { return Vec::new() };
    let list = fs::read_to_string(root.join(format!("sys/devices/system/node/node{node}/cpulist")));
    let list = list.unwrap_or_default();
    available.iter().copied().filter(|core| holds(&list, *core)).collect()
}

/// Whether a list such as `0-3,8` contains `core`.
fn holds(list: &str, core: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<usize>(), last.parse::<usize>()), (Ok(first), Ok(last)) if first <= core && core <= last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_available_cores_of_the_gpus_node() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let bus = "0000:17:00.0";
        let find = |available: &[usize]| near_cores(folder.path(), bus, available);
        assert!(find(&[0, 1]).is_empty());
        write("sys/bus/pci/devices/0000:17:00.0/numa_node", "1\n");
        write("sys/devices/system/node/node1/cpulist", "4-7,12\n");
        assert_eq!(find(&[0, 3, 5, 6]), [5, 6]);
        assert_eq!(find(&[0, 12]), [12]);
        assert!(find(&[0, 3]).is_empty());
        write("sys/bus/pci/devices/0000:17:00.0/numa_node", "-1\n");
        assert!(find(&[4]).is_empty());
    }
}
