//! How many cases the slow laws try.

use proptest::prelude::ProptestConfig;

/// A configuration of `usual` cases, multiplied by `FULCRUM_CASES` per cent where that is set.
pub fn cases(usual: u32) -> ProptestConfig {
    let percent = std::env::var("FULCRUM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let cases = (u64::from(usual) * percent / 100).clamp(1, u64::from(u32::MAX));
    ProptestConfig { cases: cases as u32, ..ProptestConfig::default() }
}
