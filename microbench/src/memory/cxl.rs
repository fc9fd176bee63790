//! Memory behind CXL: a node without cores, on a machine whose kernel lists CXL memory.

use hwprofiles::{Bytes, CxlPart, Numa, NumaNode, NumaPath, Sourced};
use std::fs;
use std::path::Path;

/// Whether the kernel under `root` lists a CXL memory device. A node without cores may also be the
/// memory of a GPU, or of the processor's package.
pub(crate) fn is_there(root: &Path) -> bool {
    let devices = fs::read_dir(root.join("sys/bus/cxl/devices")).into_iter().flatten().flatten();
    devices.map(|device| device.file_name()).any(|name| {
        let number = name.to_str().and_then(|name| name.strip_prefix("mem"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// The only node without cores, measured from its nearest cores. `None` where there are several,
/// which may be of different kinds, or where it was not measured.
pub(crate) fn part(numa: &Numa) -> Option<CxlPart> {
    let mut alone = numa.nodes.iter().filter(|node| node.cores.is_empty() && node.capacity > Bytes::ZERO);
    let (Some(node), None) = (alone.next(), alone.next()) else { return None };
    let to_it = numa.paths.iter().filter(|path| path.to == node.node);
    let rates = to_it.filter_map(|path: &NumaPath| path.measured.as_option());
    let nearest = rates.min_by(|a, b| a.latency.value.total_cmp(&b.latency.value))?;
    Some(CxlPart {
        cxl: format!("node-{}", node.node),
        note: None,
        capacity: Sourced { value: node.capacity, source: nearest.read.source.clone() },
        read: nearest.read.clone(),
        write: Some(nearest.write.clone()),
        latency: nearest.latency.clone(),
        loaded: None,
        price_per_gb: None,
    })
}

/// The memory of the nodes that have cores.
pub(crate) fn beside_cores(nodes: &[NumaNode]) -> Bytes {
    nodes.iter().filter(|node| !node.cores.is_empty()).map(|node| node.capacity).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{BytesPerSec, PathRates, Presence, Seconds};

    fn path(from: usize, to: usize, ns: u64) -> NumaPath {
        let sourced = |value| Sourced::measured(value, "2026-11-21", "bench", 0.01);
        let rates = PathRates {
            threads: 2,
            read: sourced(BytesPerSec::new(30e9)),
            write: sourced(BytesPerSec::new(20e9)),
            latency: Sourced::measured(Seconds::from_nanos(ns), "2026-11-21", "bench", 0.01),
        };
        NumaPath { from, to, distance: Presence::Absent, measured: Presence::Present(rates) }
    }

    fn numa(without_cores: &[usize], paths: Vec<NumaPath>) -> Numa {
        let node = |node, cores| NumaNode { node, capacity: Bytes::new(1 << 30), cores };
        let with_cores = [node(0, vec![0]), node(1, vec![1])];
        let nodes = with_cores.into_iter().chain(without_cores.iter().map(|&n| node(n, vec![]))).collect();
        Numa { nodes, paths }
    }

    #[test]
    fn the_one_node_without_cores_is_known_as_its_nearest_cores_reach_it() {
        let paths = vec![path(0, 0, 90), path(0, 2, 400), path(1, 2, 250)];
        let part = part(&numa(&[2], paths)).expect("a part");
        assert_eq!((part.cxl.as_str(), part.capacity.value), ("node-2", Bytes::new(1 << 30)));
        assert_eq!(part.latency.value, Seconds::from_nanos(250));
        assert_eq!(part.write.map(|write| write.value), Some(BytesPerSec::new(20e9)));
    }

    #[test]
    fn nothing_is_said_of_several_such_nodes_or_of_one_that_was_not_measured() {
        assert_eq!(part(&numa(&[2, 3], vec![path(0, 2, 250), path(0, 3, 250)])), None);
        assert_eq!(part(&numa(&[2], vec![path(0, 0, 90)])), None);
        assert_eq!(part(&numa(&[], vec![path(0, 0, 90)])), None);
    }

    #[test]
    fn the_memory_beside_cores_is_all_but_that_of_the_others() {
        assert_eq!(beside_cores(&numa(&[2, 3], vec![]).nodes), Bytes::new(2 << 30));
    }

    #[test]
    fn the_kernel_tells_of_cxl_memory_by_a_device() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_there(folder.path()));
        let devices = folder.path().join("sys/bus/cxl/devices");
        for (device, there) in [("root0", false), ("memory", false), ("mem0", true)] {
            fs::create_dir_all(devices.join(device)).unwrap();
            assert_eq!(is_there(folder.path()), there, "{device}");
        }
    }
}
