//! The rows that packed weights keep together.

/// Rows of a panel.
pub const PANEL: usize = 16;
