//! How many cases the property tests of this crate run.

use proptest::prelude::ProptestConfig;

/// 256 cases for each law, times `FULCRUM_CASES` per cent.
pub(crate) fn config() -> ProptestConfig {
    let percent = std::env::var("FULCRUM_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(100);
    ProptestConfig::with_cases((256 * percent / 100).max(1))
}
