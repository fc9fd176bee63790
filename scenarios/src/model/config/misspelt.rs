//! Sizes whose keys are mistyped. An absent key has its family's default, so a mistyped one would
//! make another model without a word.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use hwprofiles::edits_between;

/// Letters in which a mistyped key differs at most.
const MOST: usize = 2;

/// How people write the number of key and value heads where the family calls it otherwise.
const KV_HEADS: [&str; 4] = ["num_kv_heads", "n_kv_heads", "kv_heads", "n_head_kv"];

/// Refuses a key that is nearly that of a size which `config` does not write.
///
/// # Errors
/// The key, its value, and the size's.
pub(super) fn refuse_misspelt(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
) -> Result<(), ScenarioError> {
    let keys = &family.keys;
    let sizes = [keys.hidden, keys.layers, keys.heads, keys.intermediate, keys.max_positions, "vocab_size"];
    for size in sizes.into_iter().chain(keys.kv_heads).filter(|size| !config.writes(size)) {
        let is_kv = keys.kv_heads == Some(size);
        let near =
            |key: &str| (1..=MOST).contains(&edits_between(key, size)) || is_kv && KV_HEADS.contains(&key);
        if let Some(key) = config.keys().find(|key| !sizes.contains(key) && near(key)) {
            return Err(config.wrong(key, &format!("did you mean {size}? it is missing")));
        }
    }
    Ok(())
}
