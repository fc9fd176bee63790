//! Arrays divided among the members of a pool.

use crate::runtime::{Disjoint, Pool};
use std::ops::Range;

/// A member's part of `len` values: whole grains of `grain` values, except for the last part.
pub(super) fn part(len: usize, grain: usize, member: usize, of: usize) -> Range<usize> {
    let grains = len.div_ceil(grain);
    let at = |member: usize| len.min(grains * member / of * grain);
    at(member)..at(member + 1)
}

/// Runs `work(range, values)` on each member's part of `to`.
pub(super) fn each_part<T: Send>(
    pool: &Pool,
    to: &mut [T],
    grain: usize,
    work: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let len = to.len();
    let to = Disjoint::new(to);
    pool.run(|member, of| {
        let range = part(len, grain, member, of);
        // SAFETY: the members' parts do not overlap.
        work(range.clone(), unsafe { to.range(range.start, range.len()) });
    });
}
