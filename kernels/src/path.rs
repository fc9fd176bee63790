//! Which implementation runs.

use std::fmt;

/// The implementation of the kernels that a [`crate::Pool`] runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Plain scalar Rust: the definition of what every kernel computes.
    Reference,
    /// 256-bit vectors: AVX2 with FMA and F16C (Intel since Haswell, AMD since Zen).
    Avx2,
}

impl Path {
    /// The paths that this CPU can run, the plainest first.
    pub fn supported() -> Vec<Path> {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        if avx2 { vec![Path::Reference, Path::Avx2] } else { vec![Path::Reference] }
    }

    /// The fastest path that this CPU can run.
    pub fn best() -> Path {
        Self::supported().into_iter().max().unwrap_or(Path::Reference)
    }

    /// The word used in results.
    pub fn name(self) -> &'static str {
        match self {
            Path::Reference => "reference",
            Path::Avx2 => "avx2",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
