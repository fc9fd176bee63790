//! The number of cases of property tests.

use proptest::test_runner::Config;

/// `cases` random cases, scaled by the variable `FULCRUM_CASES` in per cent (default 100), and at
/// least one.
///
/// # Panics
/// If the variable is not a whole number.
pub fn cases(cases: u32) -> Config {
    let percent = match std::env::var("FULCRUM_CASES") {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("FULCRUM_CASES is '{text}': a whole number of per cent"))
        }
        Err(_) => 100_u64,
    };
    let scaled = (u64::from(cases) * percent).div_ceil(100).clamp(1, u32::MAX.into());
    Config { cases: scaled as u32, ..Config::default() }
}
