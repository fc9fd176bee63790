//! NUMA: the nodes of a machine's memory, and how fast the cores of each reach each.

use crate::files::Presence;
use crate::units::{Bytes, BytesPerSec, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// NUMA nodes and the paths between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numa {
    /// The nodes that are online, ascending by number.
    pub nodes: Vec<NumaNode>,
    /// From every node with cores to every node with memory.
    pub paths: Vec<NumaPath>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// The operating system's number. Numbers may have gaps.
    pub node: usize,
    /// All its memory; zero where it has none.
    pub capacity: Bytes,
    /// Its cores by the operating system's numbers; empty for memory alone, such as CXL memory.
    pub cores: Vec<usize>,
}

/// How fast the cores of one node reach the memory of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaPath {
    /// The node of the cores.
    pub from: usize,
    /// The node of the memory.
    pub to: usize,
    /// The firmware's distance: 10 is the node's own memory, 20 is twice as far.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub distance: Presence<u64>,
    /// What was measured.
    #[serde(default)]
    pub measured: Presence<PathRates>,
}

/// What was measured of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRates {
    /// The number of cores of the node that took part.
    #[serde(deserialize_with = "crate::units::checked")]
    pub threads: usize,
    /// Reading.
    #[serde(deserialize_with = "crate::units::checked")]
    pub read: Sourced<BytesPerSec>,
    /// Writing with non-temporal stores.
    #[serde(deserialize_with = "crate::units::checked")]
    pub write: Sourced<BytesPerSec>,
    /// One dependent random load by one core.
    #[serde(deserialize_with = "crate::units::checked")]
    pub latency: Sourced<Seconds>,
}

impl Numa {
    /// The path from the cores of one node to the memory of another.
    pub fn path(&self, from: usize, to: usize) -> Option<&NumaPath> {
        self.paths.iter().find(|path| (path.from, path.to) == (from, to))
    }

    /// The first thing that is wrong: the keys that lead to it, and a message.
    pub(crate) fn first_fault(&self) -> Option<(Vec<String>, String)> {
        let at =
            |list: &str, index: usize, key: &str| vec![list.to_owned(), index.to_string(), key.to_owned()];
        if self.nodes.is_empty() {
            return Some((vec!["nodes".to_owned()], "the list is empty: write `numa: absent`".to_owned()));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if self.nodes[..index].iter().any(|other| other.node == node.node) {
                return Some((
                    at("nodes", index, "node"),
                    format!("node {} is there twice: keep one", node.node),
                ));
            }
        }
        let numbers = || self.nodes.iter().map(|node| node.node.to_string()).collect::<Vec<_>>().join(", ");
        for (index, path) in self.paths.iter().enumerate() {
            for (key, number) in [("from", path.from), ("to", path.to)] {
                if !self.nodes.iter().any(|node| node.node == number) {
                    let message = format!("there is no node {number}: name one of {}", numbers());
                    return Some((at("paths", index, key), message));
                }
            }
            if self.nodes.iter().any(|node| node.node == path.from && node.cores.is_empty()) {
                let message = format!("node {} has no cores from which to reach anything", path.from);
                return Some((at("paths", index, "from"), message));
            }
            if self.paths[..index].iter().any(|other| (other.from, other.to) == (path.from, path.to)) {
                let message = format!("the path from node {} to node {} is there twice", path.from, path.to);
                return Some((at("paths", index, "to"), message));
            }
        }
        None
    }
}
