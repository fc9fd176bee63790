//! The nearest of some names to one that was mistyped.

/// The name that differs from `text` in the fewest letters, if it differs in at most a third of
/// them. Case does not count.
pub(crate) fn nearest_name<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    let most = text.chars().count() / 3;
    let near = |name: &'a str| (distance(&text, &name.to_lowercase()), name);
    names
        .map(near)
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Letters to insert, delete or replace between two texts (Levenshtein).
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (before, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = before + 1;
        for (column, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(*candidate != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_found_and_a_strange_one_is_not() {
        let names = ["llama-3.1-8b", "qwen3-8b", "gpt-oss-20b"];
        assert_eq!(nearest_name("Qwen3-8", names.into_iter()), Some("qwen3-8b"));
        assert_eq!(nearest_name("gptoss-20b", names.into_iter()), Some("gpt-oss-20b"));
        assert_eq!(nearest_name("wholly-different", names.into_iter()), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
