//! The crate's tests through its public functions, one module per subject, as one program.

mod attention;
mod attention_accuracy;
mod composition;
mod dequantisation;
mod estimates;
mod execution;
mod gemm_accuracy;
mod hosts;
mod library;
mod machine_files;
mod operations;
mod parts;
mod points;
mod rows;
mod schema;
mod sockets;
mod stripes;
mod units;
mod within_power;
mod yaml;

/// The number of cases on which a law is tried: `usual`, times the percentage in the variable
/// `FULCRUM_CASES`.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let percent =
        std::env::var("FULCRUM_CASES").ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(100);
    proptest::test_runner::Config::with_cases((usual.saturating_mul(percent) / 100).max(1))
}
