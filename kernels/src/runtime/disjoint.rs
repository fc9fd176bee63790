//! One slice that many threads write in different places.

use std::marker::PhantomData;

/// A mutable slice shared by the members of a pool, each of which writes its own elements.
///
/// `chunks_mut` cannot express columns of a matrix, or ranges that are handed out as work is taken.
/// This type can; in return each use needs a promise that no two threads hold the same elements.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached only through `range`, whose callers promise that no two threads hold
// the same element, and through pointers whose use is unsafe. So T is only sent between threads.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// The elements `from..from + len`.
    ///
    /// # Safety
    /// While the result lives, no other reference to these elements exists.
    // Making `&mut` from `&self` is what this type is for.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range(&self, from: usize, len: usize) -> &mut [T] {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len), "{from} + {len} > {}", self.len);
        // SAFETY: the range is inside the slice by the assertion, and exclusive by the caller's
        // promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }

    /// The address of element `from`, for a kernel that walks it with a stride.
    pub(crate) fn pointer(&self, from: usize) -> *mut T {
        assert!(from <= self.len, "{from} > {}", self.len);
        // SAFETY: the address is inside the slice, or one past its end.
        unsafe { self.start.add(from) }
    }
}
