//! One slice, written by many threads in different places.

use std::marker::PhantomData;

/// A mutable slice shared by the members of a pool, each of which writes its own elements.
///
/// Splitting with `chunks_mut` cannot express columns of a matrix or ranges that are handed out as work
/// is taken; this can, at the price of a promise at each use.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is through unsafe functions whose callers promise that no two threads touch
// the same elements at once; then sending T between threads is all that happens.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// The elements `from..from + len`.
    ///
    /// # Safety
    /// While the result lives, nobody else holds any of these elements.
    // Making `&mut` from `&self` is what this type is for.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range(&self, from: usize, len: usize) -> &mut [T] {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len), "{from} + {len} > {}", self.len);
        // SAFETY: inside the slice by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }

    /// The address of element `from`, for a kernel that walks it with a stride.
    pub(crate) fn pointer(&self, from: usize) -> *mut T {
        assert!(from <= self.len, "{from} > {}", self.len);
        // SAFETY: inside the slice, or one past its end.
        unsafe { self.start.add(from) }
    }
}
