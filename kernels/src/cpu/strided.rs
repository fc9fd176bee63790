//! Matrices of f32 whose rows lie a fixed distance apart.

/// Rows of f32, each `stride` values after the one before. A row uses the first values of its
/// stride.
#[derive(Debug, Clone, Copy)]
pub struct StridedRows<'a> {
    /// The values, from the first row on.
    pub values: &'a [f32],
    /// Values from the start of one row to the start of the next.
    pub stride: usize,
}

impl<'a> StridedRows<'a> {
    /// Rows of `values`, `stride` values apart.
    pub fn new(values: &'a [f32], stride: usize) -> Self {
        Self { values, stride }
    }

    /// Panics unless there are `rows` rows of `columns` values.
    #[inline]
    #[track_caller]
    pub(crate) fn assert_holds(&self, rows: usize, columns: usize, name: &str) {
        assert!(
            holds(self.values.len(), rows, self.stride, columns),
            "{name} is too short for {rows} × {columns}"
        );
    }
}

/// Rows of f32 to write; the values between rows are left alone.
#[derive(Debug)]
pub struct StridedRowsMut<'a> {
    /// The values, from the first row on.
    pub values: &'a mut [f32],
    /// Values from the start of one row to the start of the next.
    pub stride: usize,
}

impl<'a> StridedRowsMut<'a> {
    /// Rows of `values`, `stride` values apart.
    pub fn new(values: &'a mut [f32], stride: usize) -> Self {
        Self { values, stride }
    }

    /// Panics unless there are `rows` rows of `columns` values.
    #[inline]
    #[track_caller]
    pub(crate) fn assert_holds(&self, rows: usize, columns: usize, name: &str) {
        assert!(
            holds(self.values.len(), rows, self.stride, columns),
            "{name} is too short for {rows} × {columns}"
        );
    }
}

/// Whether `len` values are enough for `rows` rows of `columns` values that do not overlap. A
/// product that a `usize` cannot hold is more than any slice has.
pub(crate) fn holds(len: usize, rows: usize, stride: usize, columns: usize) -> bool {
    let Some(before) = rows.checked_sub(1) else { return true };
    let end = before.checked_mul(stride).and_then(|start| start.checked_add(columns));
    (before == 0 || stride >= columns) && end.is_some_and(|end| end <= len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_held_where_the_last_one_ends_inside() {
        assert!(holds(0, 0, 0, 5) && holds(5, 1, 0, 5) && holds(11, 2, 6, 5));
        assert!(!holds(4, 1, 5, 5) && !holds(10, 2, 6, 5) && !holds(10, 2, 4, 5));
    }

    #[test]
    fn a_stride_that_overflows_holds_nothing() {
        assert!(!holds(100, 3, 1 << 63, 1));
        assert!(!holds(100, 2, usize::MAX, 2));
        assert!(!holds(100, usize::MAX, usize::MAX, usize::MAX));
    }
}
