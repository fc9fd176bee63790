//! Branch and bound over whole numbers of layers.
//!
//! Patterns are taken in the order of their cost at the shadow prices. What is left to place costs at least as
//! much per layer as the next pattern: where that exceeds the best solution so far, nothing better lies beyond.
//! With good prices only patterns near the relaxed optimum are ever tried.

use crate::shadow::Prices;
use crate::table::{Choice, Found, Table};

/// Improves `best` with the solutions of `table`, which must have no items, that are better by more than the share
/// `worth`. Visits at most `nodes` nodes and takes what it visited off; whether it saw everything.
pub(crate) fn search(
    table: &Table,
    prices: &Prices,
    worth: f64,
    nodes: &mut u64,
    best: &mut Option<Found>,
) -> bool {
    let mut order: Vec<(f64, &Choice)> = table.patterns.iter().map(|p| (prices.cost(p), p)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.index.cmp(&b.1.index)));
    let mut ends: Vec<(f64, &Choice)> = table.ends.iter().map(|e| (prices.cost(e), e)).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.index.cmp(&b.1.index)));
    let room = prices.room(table);
    let lightest = lightest(table, &order);
    let mut search = Search { table, order, lightest, worth, counts: Vec::new(), best, nodes };
    for (cost, end) in ends {
        let node = Node {
            end: end.index,
            next: 0,
            left: table.layers,
            cost: cost - room,
            times: end.times.clone(),
            bytes: end.bytes.clone(),
        };
        search.visit(&node);
    }
    *search.nodes > 0
}

/// Per position in `order` and memory, the fewest bytes of a pattern from there on.
fn lightest(table: &Table, order: &[(f64, &Choice)]) -> Vec<Vec<u64>> {
    let mut lightest = vec![vec![u64::MAX; table.room.len()]; order.len() + 1];
    for at in (0..order.len()).rev() {
        let bytes = &order[at].1.bytes;
        lightest[at] = lightest[at + 1].iter().zip(bytes).map(|(&rest, &own)| rest.min(own)).collect();
    }
    lightest
}

struct Search<'a> {
    table: &'a Table,
    /// Patterns by ascending cost.
    order: Vec<(f64, &'a Choice)>,
    lightest: Vec<Vec<u64>>,
    worth: f64,
    /// The way to the present node.
    counts: Vec<(usize, u64)>,
    best: &'a mut Option<Found>,
    nodes: &'a mut u64,
}

/// A part of a solution.
struct Node {
    end: usize,
    /// Position of the next pattern that may be added.
    next: usize,
    /// Layers left to place.
    left: u64,
    /// At the shadow prices, the room's worth taken off.
    cost: f64,
    times: Vec<f64>,
    bytes: Vec<u64>,
}

impl Search<'_> {
    fn visit(&mut self, node: &Node) {
        if node.left == 0 {
            return self.finish(node);
        }
        for at in node.next..self.order.len() {
            let (cost, pattern) = self.order[at];
            if node.cost + cost * node.left as f64 >= self.limit() {
                return;
            }
            for count in (1..=self.most(node, pattern, at)).rev() {
                if *self.nodes == 0 {
                    return;
                }
                *self.nodes -= 1;
                let child = node.with(pattern, at, count, cost);
                if child.left == 0 || self.fits(&child) {
                    self.counts.push((pattern.index, count));
                    self.visit(&child);
                    self.counts.pop();
                }
            }
        }
    }

    /// What a solution must stay below.
    fn limit(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |best| best.value * (1.0 - self.worth))
    }

    /// How many layers of `pattern` fit beside what is there when the others are the lightest that may follow.
    fn most(&self, node: &Node, pattern: &Choice, at: usize) -> u64 {
        let mut most = node.left;
        for (memory, &room) in self.table.room.iter().enumerate() {
            let light = self.lightest[at][memory];
            let least = node.bytes[memory].saturating_add(light.saturating_mul(node.left));
            let Some(spare) = room.checked_sub(least) else { return 0 };
            most = most.min(spare.checked_div(pattern.bytes[memory] - light).unwrap_or(u64::MAX));
        }
        most
    }

    /// Whether the lightest patterns that may follow fit.
    fn fits(&self, node: &Node) -> bool {
        let memories = node.bytes.iter().zip(&self.lightest[node.next]).zip(&self.table.room);
        memories
            .into_iter()
            .all(|((&used, light), &room)| used.saturating_add(light.saturating_mul(node.left)) <= room)
    }

    fn finish(&mut self, node: &Node) {
        let value = self.table.value(&node.times);
        if value < self.limit() {
            *self.best = Some(Found { counts: self.counts.clone(), end: node.end, value });
        }
    }
}

impl Node {
    fn with(&self, pattern: &Choice, at: usize, count: u64, cost: f64) -> Self {
        let times = self.times.iter().zip(&pattern.times);
        let bytes = self.bytes.iter().zip(&pattern.bytes);
        Self {
            end: self.end,
            next: at + 1,
            left: self.left - count,
            cost: self.cost + cost * count as f64,
            times: times.map(|(sum, time)| sum + time * count as f64).collect(),
            bytes: bytes.map(|(sum, bytes)| sum + bytes * count).collect(),
        }
    }
}
