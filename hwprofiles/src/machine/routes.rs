//! Routes: the links that lead from one memory to another, over other memories where there is no
//! direct one.

use crate::machine::graph::Machine;
use crate::machine::link::LinkId;
use crate::machine::memory::MemoryId;
use crate::units::Seconds;
use petgraph::algo::astar;
use petgraph::graph::{DiGraph, NodeIndex};
use std::ops::Add;

/// What a route costs, the most important first: fewer links, then less latency, then links that
/// the machine lists earlier.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
struct RouteCost {
    links: usize,
    latency: Seconds,
    order: usize,
}

impl Add for RouteCost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            links: self.links + other.links,
            latency: self.latency + other.latency,
            order: self.order + other.order,
        }
    }
}

impl Machine {
    /// The links of the best route between two memories, in the order in which bytes pass them;
    /// `None` where none leads there. The best route has the fewest links; of equally short ones it
    /// has the least latency, then the links that are listed first. From a memory to itself it is
    /// empty.
    pub fn route(&self, from: MemoryId, to: MemoryId) -> Option<Vec<LinkId>> {
        let mut graph: DiGraph<(), RouteCost> = DiGraph::with_capacity(self.memories.len(), self.links.len());
        for _ in &self.memories {
            graph.add_node(());
        }
        for (order, link) in self.links.iter().enumerate() {
            let cost = RouteCost { links: 1, latency: link.latency.value, order };
            graph.add_edge(NodeIndex::new(link.from.0), NodeIndex::new(link.to.0), cost);
        }
        let (start, end) = (NodeIndex::new(from.0), NodeIndex::new(to.0));
        let cost = |edge: petgraph::graph::EdgeReference<'_, RouteCost>| *edge.weight();
        let (_, memories) = astar(&graph, start, |node| node == end, cost, |_| RouteCost::default())?;
        let ids: Vec<MemoryId> = memories.into_iter().map(|node| MemoryId(node.index())).collect();
        ids.windows(2).map(|pair| self.link_between(pair[0], pair[1])).collect()
    }
}
