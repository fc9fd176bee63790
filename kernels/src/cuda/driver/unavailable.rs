//! Why there is no GPU to use.

use std::fmt;

/// Why there is no GPU to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuUnavailable {
    /// The reason in words: "libcuda.so.1 was not found".
    pub reason: String,
    /// Whether a driver is there all the same, so that the user expects a GPU.
    pub has_driver: bool,
}

impl fmt::Display for GpuUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
