//! The NUMA nodes of a machine, as its kernel lists them.

use crate::system::processor::core_list;
use hwprofiles::Bytes;
use std::fs;
use std::path::Path;

/// One node that is online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SystemNode {
    /// Its number; there may be gaps.
    pub number: usize,
    /// All its memory; zero for a node with cores alone.
    pub capacity: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// Its cores; none where it is memory alone, such as CXL memory.
    pub cores: Vec<usize>,
    /// (Node, distance) pairs, also for nodes without cores.
    pub distances: Vec<(usize, u64)>,
}

/// Reads the nodes from the `/sys` under `root`, ascending; none where the kernel lists none.
pub(crate) fn nodes(root: &Path) -> Vec<SystemNode> {
    let folder = root.join("sys/devices/system/node");
    let read = |file: String| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let mut online = core_list(read("online".to_owned()).trim());
    // A number may be listed whose folder the kernel is about to create or to remove.
    online.retain(|number| folder.join(format!("node{number}")).is_dir());
    let node = |&number: &usize| {
        let memory = read(format!("node{number}/meminfo"));
        let distances = read(format!("node{number}/distance"));
        let distances = distances.split_ascii_whitespace().map(str::parse);
        SystemNode {
            number,
            capacity: kib(&memory, "MemTotal:"),
            free: kib(&memory, "MemFree:"),
            cores: core_list(read(format!("node{number}/cpulist")).trim()),
            // One for each node that is online, in order.
            distances: online
                .iter()
                .zip(distances)
                .filter_map(|(&to, distance)| Some((to, distance.ok()?)))
                .collect(),
        }
    };
    online.iter().map(node).collect()
}

/// `Node 0 MemFree:  7 kB` → 7 KiB; 0 where there is no such line.
fn kib(text: &str, key: &str) -> Bytes {
    let line = text.lines().find_map(|line| line.split_once(key));
    let number = line.and_then(|(_, rest)| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Bytes::new(number.unwrap_or(0) << 10)
}

impl SystemNode {
    /// The distance to node `to`, if it is listed.
    pub fn distance(&self, to: usize) -> Option<u64> {
        self.distances.iter().find(|(node, _)| *node == to).map(|(_, distance)| *distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with this `online` list and with folders of (number, cpulist, MiB of memory,
    /// distance).
    fn machine(online: &str, folders: &[(usize, &str, u64, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/node");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("online"), online).unwrap();
        for (number, cores, mib, distance) in folders {
            let node = folder.join(format!("node{number}"));
            fs::create_dir(&node).unwrap();
            fs::write(node.join("cpulist"), format!("{cores}\n")).unwrap();
            let (total, free) = (mib << 10, mib << 9);
            let meminfo = format!(
                "Node {number} MemTotal:       {total} kB\nNode {number} MemFree:        {free} kB\n\
                 Node {number} MemUsed:        {free} kB\n"
            );
            fs::write(node.join("meminfo"), meminfo).unwrap();
            fs::write(node.join("distance"), format!("{distance}\n")).unwrap();
        }
        root
    }

    #[test]
    fn two_sockets_are_two_nodes_of_interleaved_cores() {
        let root = machine("0-1\n", &[(0, "0,2,4-6", 64, "10 21"), (1, "1,3,7", 32, "21 10")]);
        let [first, second] = &nodes(root.path())[..] else { panic!("two nodes") };
        assert_eq!((first.number, first.cores.as_slice()), (0, [0, 2, 4, 5, 6].as_slice()));
        assert_eq!((second.number, second.cores.as_slice()), (1, [1, 3, 7].as_slice()));
        assert_eq!((first.capacity, first.free), (Bytes::new(64 << 20), Bytes::new(32 << 20)));
        assert_eq!(
            (first.distance(0), first.distance(1), second.distance(0)),
            (Some(10), Some(21), Some(21))
        );
    }

    #[test]
    fn memory_behind_cxl_is_a_node_without_cores() {
        let root = machine("0-1", &[(0, "0-3", 64, "10 14"), (1, "", 256, "14 10")]);
        let nodes = nodes(root.path());
        assert_eq!((nodes[1].cores.as_slice(), nodes[1].capacity), ([].as_slice(), Bytes::new(256 << 20)));
        assert_eq!(nodes[0].distance(1), Some(14));
    }

    #[test]
    fn distances_belong_to_the_nodes_online_where_numbers_have_gaps() {
        let folders = [(0, "0", 8, "10 20 30"), (4, "1", 8, "20 10 40"), (7, "", 8, "30 40 10")];
        let nodes = nodes(machine("0,4,7", &folders).path());
        assert_eq!(nodes.iter().map(|node| node.number).collect::<Vec<_>>(), [0, 4, 7]);
        assert_eq!(
            (nodes[0].distance(4), nodes[1].distance(7), nodes[0].distance(1)),
            (Some(20), Some(40), None)
        );
    }

    #[test]
    fn a_node_that_is_offline_or_has_no_folder_is_no_node() {
        let root = machine("0,2", &[(0, "0", 8, "10"), (1, "1", 8, "10")]);
        assert_eq!(nodes(root.path()).len(), 1);
    }

    #[test]
    fn a_node_of_cores_alone_has_no_memory() {
        let root = machine("0-1", &[(0, "0", 8, "10 20"), (1, "1", 0, "20 10")]);
        fs::remove_file(root.path().join("sys/devices/system/node/node1/meminfo")).unwrap();
        assert_eq!(nodes(root.path())[1].capacity, Bytes::ZERO);
    }

    #[test]
    fn a_kernel_that_knows_no_nodes_has_none() {
        assert_eq!(nodes(tempfile::tempdir().unwrap().path()), []);
    }

    #[test]
    fn this_machine_has_a_node_with_memory_and_cores_where_its_kernel_knows_any() {
        let nodes = nodes(Path::new("/"));
        assert!(
            nodes.is_empty()
                || nodes.iter().any(|node| node.capacity > Bytes::ZERO && !node.cores.is_empty())
        );
    }
}
