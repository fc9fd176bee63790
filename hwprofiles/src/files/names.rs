//! TODO files/names.rs

/// A profile's name as the shipped ones are spelt: `A100_SXM` is `a100-sxm`.
pub fn plain_name(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}
