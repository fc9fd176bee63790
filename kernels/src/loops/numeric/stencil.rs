//! A sweep of Jacobi's method over a grid.

use super::vectorised;
use crate::loops::parts::each_part;
use crate::runtime::Pool;

/// Each inner point of `to` becomes the mean of its four neighbours in `from`. `from` has rows of
/// `width` values; `to` has the same rows without the first and the last. The first and the last
/// column are copied. FLOP: 4 per inner point. Bytes: 8 read and 4 written per point, as long as
/// three rows fit a core's cache.
///
/// # Panics
/// Where `width` is below 2, or the lengths do not fit.
pub fn jacobi(pool: &Pool, to: &mut [f32], from: &[f32], width: usize) {
    assert!(width >= 2 && to.len().is_multiple_of(width), "{} values in rows of {width}", to.len());
    assert_eq!(from.len(), to.len() + 2 * width);
    each_part(pool, to, width, |range, to| {
        let from = &from[range.start..range.end + 2 * width];
        vectorised(pool, || {
            for (row, to) in to.chunks_exact_mut(width).enumerate() {
                mean_of_neighbours(to, &from[row * width..(row + 3) * width]);
            }
        });
    });
}

/// One row from the three around it.
#[inline(always)]
fn mean_of_neighbours(to: &mut [f32], from: &[f32]) {
    let (width, inner) = (to.len(), to.len() - 2);
    let (above, rest) = from.split_at(width);
    let (same, below) = rest.split_at(width);
    (to[0], to[width - 1]) = (same[0], same[width - 1]);
    let (above, below, to) = (&above[1..][..inner], &below[1..][..inner], &mut to[1..][..inner]);
    let (left, right) = (&same[..inner], &same[2..][..inner]);
    for at in 0..inner {
        to[at] = 0.25 * ((above[at] + below[at]) + (left[at] + right[at]));
    }
}
