//! The core that a GPU is nearest to: what it touches first lies in the memory of that socket.

use std::fs;
use std::path::Path;

/// One of `available` on the NUMA node of the device at `bus` (`0000:17:00.0`); `None` where the system does not say.
pub(super) fn core(root: &Path, bus: &str, available: &[usize]) -> Option<usize> {
    let node = fs::read_to_string(root.join("sys/bus/pci/devices").join(bus).join("numa_node")).ok()?;
    // −1 is no node.
    let node: usize = node.trim().parse().ok()?;
    let cores = fs::read_to_string(root.join(format!("sys/devices/system/node/node{node}/cpulist"))).ok()?;
    available.iter().copied().find(|core| holds(&cores, *core))
}

/// Whether a list such as `0-3,8` names `core`.
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
    fn it_is_the_first_available_core_of_the_gpus_node() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let bus = "0000:17:00.0";
        let find = |available: &[usize]| core(folder.path(), bus, available);
        assert_eq!(find(&[0, 1]), None);
        write("sys/bus/pci/devices/0000:17:00.0/numa_node", "1\n");
        write("sys/devices/system/node/node1/cpulist", "4-7,12\n");
        assert_eq!(find(&[0, 3, 5, 6]), Some(5));
        assert_eq!(find(&[0, 12]), Some(12));
        assert_eq!(find(&[0, 3]), None);
        write("sys/bus/pci/devices/0000:17:00.0/numa_node", "-1\n");
        assert_eq!(find(&[4]), None);
    }
}
