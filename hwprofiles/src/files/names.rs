//! Names of profiles.

/// A profile's name in the spelling of the shipped ones: `A100_SXM` is `a100-sxm`.
pub fn plain_name(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}
