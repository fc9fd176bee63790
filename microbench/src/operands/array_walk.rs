//! A walk through long arrays, slice by slice.

use kernels::Pool;
use std::ops::Range;

/// A walk through arrays of equal length, slice after slice and round again. A sample of a tenth of
/// a second would include whatever else ran on the core. Of many short samples only a few are
/// disturbed.
#[derive(Debug)]
pub(crate) struct ArrayWalk {
    len: usize,
    slice: usize,
    next: usize,
}

/// Bytes of all arrays together that each member of a team processes in one call: some hundred
/// microseconds.
const SLICE: usize = 4 << 20;
/// Values of a page. Arrays start at a page.
const PAGE: usize = 512;

impl ArrayWalk {
    /// A walk of all members of `pool` through `arrays` arrays of at most `len` values (doubles)
    /// each.
    pub fn new(len: usize, arrays: usize, pool: &Pool) -> Self {
        let len = len / PAGE * PAGE;
        let slice = SLICE * pool.members() / size_of::<f64>() / arrays / PAGE * PAGE;
        Self { len, slice: slice.min(len), next: 0 }
    }

    /// Values of each array.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Values of each array in one slice.
    pub fn slice(&self) -> usize {
        self.slice
    }

    /// The next slice.
    pub fn next(&mut self) -> Range<usize> {
        let start = if self.next + self.slice > self.len { 0 } else { self.next };
        self.next = start + self.slice;
        start..self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::affinity::available_cores;

    #[test]
    fn slices_follow_each_other_and_begin_again_before_the_end_is_passed() {
        let pool = Pool::new(&available_cores()[..1]).unwrap();
        let slice = SLICE / 8 / 2;
        let mut slices = ArrayWalk::new(5 * slice / 2 + 7, 2, &pool);
        assert_eq!((slices.slice(), slices.len()), (slice, 5 * slice / 2));
        let starts: Vec<_> = (0..5).map(|_| slices.next().start / slice).collect();
        assert_eq!(starts, [0, 1, 0, 1, 0]);
        let mut short = ArrayWalk::new(PAGE + 1, 1, &pool);
        assert_eq!([short.next(), short.next()], [0..PAGE, 0..PAGE]);
    }
}
