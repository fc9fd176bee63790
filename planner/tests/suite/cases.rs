//! How many cases the property tests run.

/// Number of cases of a property test. The variable `FULCRUM_CASES` scales `default` in per cent.
pub fn cases(default: u32) -> u32 {
    let percent = std::env::var("FULCRUM_CASES").ok().and_then(|percent| percent.parse().ok());
    (default * percent.unwrap_or(100) / 100).max(1)
}
