//! Division of the products of several matrices into items of work.

use super::blocking::split;
use crate::cpu::weights::{PANEL, WeightsView};
use crate::runtime::Pool;
use std::ops::Range;

/// A matrix and the rows of x and y that it multiplies: an expert and its tokens.
#[derive(Debug, Clone)]
pub struct GemmGroup<'a> {
    /// The rows of x, and of y.
    pub rows: Range<usize>,
    /// The matrix.
    pub w: WeightsView<'a>,
}

impl GemmGroup<'_> {
    /// The time of the group in multiply-adds: half of 2·m·n·k FLOP. A byte of weights takes as
    /// long to come from memory as two to four multiply-adds.
    fn work(&self) -> usize {
        2 * self.w.bytes().len() + self.rows.len() * self.w.rows() * self.w.columns()
    }
}

/// Runs `work(member, w, rows, panels)` for parts that together are all rows and panels of every
/// group. The number of a group's parts is in proportion to its share of all work, so that the
/// whole team shares a group with most of the rows. Rows are divided in multiples of `tile_rows`
/// and at most `chunk_rows`, panels in multiples of `tile_panels`.
pub(super) fn each_part(
    pool: &Pool,
    groups: &[GemmGroup<'_>],
    (tile_rows, chunk_rows): (usize, usize),
    tile_panels: usize,
    work: impl Fn(usize, WeightsView<'_>, Range<usize>, Range<usize>) + Sync,
) {
    // At least four items for each member, so that the others do not wait for a member that was
    // interrupted.
    let enough = if pool.members() == 1 { 1 } else { 4 * pool.members() };
    let all: usize = groups.iter().map(GemmGroup::work).sum();
    let mut items = 0;
    let mut divided = Vec::with_capacity(groups.len());
    for group in groups {
        let share = (enough * group.work()).div_ceil(all.max(1));
        let (rows, panels) = split(share, group.rows.len(), group.w, (tile_rows, chunk_rows));
        let panels = panels.next_multiple_of(tile_panels);
        divided.push((items, rows, panels));
        items += group.rows.len().div_ceil(rows) * group.w.rows().div_ceil(PANEL).div_ceil(panels);
    }
    pool.each(items, |member, item| {
        let index = divided.partition_point(|&(first, ..)| first <= item) - 1;
        let (GemmGroup { rows: all, w }, (first, rows, panels)) = (&groups[index], divided[index]);
        let row_chunks = all.len().div_ceil(rows);
        let row = all.start + (item - first) % row_chunks * rows;
        let panel = (item - first) / row_chunks * panels;
        let last = w.rows().div_ceil(PANEL).min(panel + panels);
        work(member, *w, row..all.end.min(row + rows), panel..last);
    });
}

#[cfg(test)]
mod tests {
    use super::super::blocking::CHUNK_ROWS;
    use super::*;
    use crate::cpu::weights::Weights;
    use crate::runtime::{MemoryArena, affinity};
    use hwprofiles::{DType, units::Bytes};
    use std::sync::Mutex;

    #[test]
    fn parts_cover_everything_once_and_none_is_much_more_than_a_members_quarter() {
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
        let weights = Weights::from_f32(&memory, DType::Bf16, 330, 64, &vec![0.5; 330 * 64]).expect("fits");
        let cores = affinity::available_cores();
        for members in [1, 2, 3, 8] {
            let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
            let pool = Pool::new(&cores).expect("our cores");
            for heights in [&[7][..], &[1, 1, 600, 1], &[400, 3, 3], &[2; 20]] {
                let mut end = 0;
                let group = |&rows: &usize| {
                    end += rows;
                    GemmGroup { rows: end - rows..end, w: weights.view() }
                };
                let groups: Vec<_> = heights.iter().map(group).collect();
                let parts = Mutex::new(Vec::new());
                each_part(&pool, &groups, (6, CHUNK_ROWS), 2, |_, _, rows, panels| {
                    parts.lock().expect("nobody panics").push((rows, panels));
                });
                let parts = parts.into_inner().expect("nobody panics");
                let mut seen = vec![0; end * 21];
                for (rows, panels) in &parts {
                    for row in rows.clone() {
                        panels.clone().for_each(|panel| seen[row * 21 + panel] += 1);
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{members} members, {heights:?}");
                let work = |(rows, panels): &(Range<usize>, Range<usize>)| rows.len() * panels.len();
                let largest = parts.iter().map(work).max().unwrap_or(0);
                // Rounding a part up to whole tiles can double it; up to four tiles of rows are not
                // divided.
                let fair = (2 * seen.len()).div_ceil(4 * members).max(4 * 6 * 2);
                assert!(
                    members == 1 || largest <= fair,
                    "{members} members, {heights:?}: {largest} > {fair}"
                );
            }
        }
    }
}
