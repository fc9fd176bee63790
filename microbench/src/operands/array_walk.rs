//! Long arrays, walked a part at a time.

use kernels::Pool;
use std::ops::Range;

/// A walk through arrays of equal length, slice after slice and round again. A sample of a tenth of a second would
/// contain whatever else ran on the core meanwhile, and its median with it; of many short ones few are disturbed.
#[derive(Debug)]
pub(crate) struct ArrayWalk {
    len: usize,
    slice: usize,
    next: usize,
}

/// Bytes of all arrays together that each member of a team goes through in one call: some hundred microseconds.
const SLICE: usize = 4 << 20;
/// Values of a page: arrays start on one.
const PAGE: usize = 512;

impl ArrayWalk {
    /// Of `arrays` arrays of at most `len` values (doubles) each, walked by all members of the pool.
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
