//! Branch and bound over whole numbers of layers.
//!
//! The search fills one group of layers after the other. Within a group it takes columns in the
//! order of their cost at the dual prices. Each remaining layer costs at least as much as the next
//! column, so a branch ends where that bound reaches the best solution so far. With good prices the
//! search tries only columns near the relaxed optimum.

use crate::search::dual_prices::DualPrices;
use crate::search::integer_program::{
    Incumbent, IntegerProgram, IntegerSolution, MemorySizes, PatternColumn, RowTimes,
};
use smallvec::{SmallVec, smallvec};

/// Improves `best` with solutions of `program` that are better by more than the share `min_gain`.
/// The program must have no items. Visits at most `nodes` nodes and subtracts the visited ones.
/// Returns whether it searched everything.
pub(crate) fn search(
    program: &IntegerProgram,
    prices: &DualPrices,
    min_gain: f64,
    nodes: &mut u64,
    best: &mut Incumbent,
) -> bool {
    let orders: Vec<ColumnOrder<'_>> =
        program.groups.iter().map(|group| ColumnOrder::new(program, prices, group)).collect();
    // Lower bounds of the groups after each group.
    let mut suffix_bounds =
        vec![RemainingBound { cost: -prices.room(program), bytes: vec![0; program.room.len()] }];
    for (group, order) in program.groups.iter().zip(&orders).rev() {
        let Some(last) = suffix_bounds.last() else { return true };
        let Some(&(cheapest, _)) = order.choices.first() else { return true };
        let light = last.bytes.iter().zip(&order.lightest[0]);
        suffix_bounds.push(RemainingBound {
            cost: last.cost + cheapest * group.layers as f64,
            bytes: light.map(|(sum, light)| sum + light * group.layers).collect(),
        });
    }
    suffix_bounds.reverse();
    let times = smallvec![0.0; program.phases.len()];
    let (adds, bytes) = (smallvec![0.0; program.measures.len()], smallvec![0; program.room.len()]);
    let mut search =
        BranchAndBound { program, orders, suffix_bounds, min_gain, counts: Vec::new(), best, nodes };
    let left = program.groups.first().map_or(0, |group| group.layers);
    search.visit(&SearchNode { group: 0, next: 0, left, cost: 0.0, times, adds, bytes });
    *search.nodes > 0
}

/// The columns of a group by ascending cost, and for each position and memory the fewest bytes of
/// the columns from there on.
struct ColumnOrder<'a> {
    choices: Vec<(f64, &'a PatternColumn)>,
    lightest: Vec<Vec<u64>>,
}

impl<'a> ColumnOrder<'a> {
    fn new(
        program: &IntegerProgram,
        prices: &DualPrices,
        group: &'a crate::search::integer_program::ColumnGroup,
    ) -> Self {
        let mut choices: Vec<(f64, &PatternColumn)> =
            group.choices.iter().map(|c| (prices.cost(c), c)).collect();
        choices.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.index.cmp(&b.1.index)));
        let mut lightest = vec![vec![u64::MAX; program.room.len()]; choices.len() + 1];
        for at in (0..choices.len()).rev() {
            let bytes = &choices[at].1.bytes;
            lightest[at] = lightest[at + 1].iter().zip(bytes).map(|(&rest, &own)| rest.min(own)).collect();
        }
        Self { choices, lightest }
    }
}

/// Lower bounds of cost and bytes of several groups.
struct RemainingBound {
    cost: f64,
    bytes: Vec<u64>,
}

struct BranchAndBound<'a> {
    program: &'a IntegerProgram,
    orders: Vec<ColumnOrder<'a>>,
    /// The entry of a group bounds that group and all behind it together; the last entry bounds
    /// none.
    suffix_bounds: Vec<RemainingBound>,
    min_gain: f64,
    /// The path to the present node: (group, column, layers).
    counts: Vec<(usize, usize, u64)>,
    best: &'a mut Incumbent,
    nodes: &'a mut u64,
}

/// A partial solution.
struct SearchNode {
    group: usize,
    /// Position of the next column that may be added.
    next: usize,
    /// Layers of the group that are not placed yet.
    left: u64,
    /// Cost at the dual prices.
    cost: f64,
    times: RowTimes,
    adds: SmallVec<[f64; 4]>,
    bytes: MemorySizes,
}

impl BranchAndBound<'_> {
    fn visit(&mut self, node: &SearchNode) {
        if node.left == 0 {
            return self.next_group(node);
        }
        for at in node.next..self.orders[node.group].choices.len() {
            let (cost, choice) = self.orders[node.group].choices[at];
            if node.cost + cost * node.left as f64 + self.suffix_bounds[node.group + 1].cost >= self.limit() {
                return;
            }
            for count in (1..=self.most(node, choice, at)).rev() {
                if *self.nodes == 0 {
                    return;
                }
                *self.nodes -= 1;
                let child = node.with(choice, at, count, cost);
                if self.fits(&child) {
                    self.counts.push((node.group, choice.index, count));
                    self.visit(&child);
                    self.counts.pop();
                }
            }
        }
    }

    fn next_group(&mut self, node: &SearchNode) {
        let group = node.group + 1;
        let Some(next) = self.program.groups.get(group) else { return self.finish(node) };
        let (times, adds, bytes) = (node.times.clone(), node.adds.clone(), node.bytes.clone());
        self.visit(&SearchNode { group, next: 0, left: next.layers, cost: node.cost, times, adds, bytes });
    }

    /// The value below which a solution is an improvement.
    fn limit(&self) -> f64 {
        self.best.limit() * (1.0 - self.min_gain)
    }

    /// The most layers of `choice` that fit if all further layers take the lightest columns.
    fn most(&self, node: &SearchNode, choice: &PatternColumn, at: usize) -> u64 {
        let mut most = node.left;
        for (memory, &room) in self.program.room.iter().enumerate() {
            let light = self.orders[node.group].lightest[at][memory];
            let least = node.bytes[memory]
                .saturating_add(light.saturating_mul(node.left))
                .saturating_add(self.suffix_bounds[node.group + 1].bytes[memory]);
            let Some(spare) = room.checked_sub(least) else { return 0 };
            most = most.min(spare.checked_div(choice.bytes[memory] - light).unwrap_or(u64::MAX));
        }
        most
    }

    /// Whether the node fits if all further layers take the lightest columns.
    fn fits(&self, node: &SearchNode) -> bool {
        let lightest = &self.orders[node.group].lightest[node.next];
        (0..self.program.room.len()).all(|memory| {
            let own = if node.left == 0 { 0 } else { lightest[memory].saturating_mul(node.left) };
            let rest = self.suffix_bounds[node.group + 1].bytes[memory];
            node.bytes[memory].saturating_add(own).saturating_add(rest) <= self.program.room[memory]
        })
    }

    fn finish(&mut self, node: &SearchNode) {
        let Some(value) = self.program.value(&node.times, &node.adds) else { return };
        if value < self.limit() {
            let mut counts = vec![Vec::new(); self.program.groups.len()];
            self.counts.iter().for_each(|&(group, choice, count)| counts[group].push((choice, count)));
            self.best.take(IntegerSolution { counts, value });
        }
    }
}

impl SearchNode {
    fn with(&self, choice: &PatternColumn, at: usize, count: u64, cost: f64) -> Self {
        let times = self.times.iter().zip(&choice.times);
        let adds = self.adds.iter().zip(&choice.adds);
        let bytes = self.bytes.iter().zip(&choice.bytes);
        Self {
            group: self.group,
            next: at + 1,
            left: self.left - count,
            cost: self.cost + cost * count as f64,
            times: times.map(|(sum, time)| sum + time * count as f64).collect(),
            adds: adds.map(|(sum, add)| sum + add * count as f64).collect(),
            bytes: bytes.map(|(sum, bytes)| sum + bytes * count).collect(),
        }
    }
}
