//! The known words that are nearest to an unknown one, for messages.

/// At most this many words are named.
const NAMED: usize = 3;

/// The letters and digits of `text`, in lower case: `Q4_K` and `q4-k` are the same word.
pub(crate) fn plain_word(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The three of the `known` words that take the fewest single-letter edits from `text`, nearest
/// first; of equally near ones the earlier.
pub fn nearest<'w>(text: &str, known: impl IntoIterator<Item = &'w str>) -> Vec<&'w str> {
    let wanted: Vec<char> = plain_word(text).chars().take(LONGEST).collect();
    let mut words: Vec<_> = known.into_iter().map(|word| (edits(&wanted, &plain_word(word)), word)).collect();
    words.sort_by_key(|(edits, _)| *edits);
    words.into_iter().take(NAMED).map(|(_, word)| word).collect()
}

/// Longer texts are compared by their first letters only.
const LONGEST: usize = 64;

/// The single-letter edits between two words.
pub(crate) fn edits_between(one: &str, other: &str) -> usize {
    edits(&one.chars().take(LONGEST).collect::<Vec<_>>(), other)
}

/// Levenshtein's distance: inserted, removed and replaced letters.
fn edits(wanted: &[char], word: &str) -> usize {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (above, letter) in word.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (at, other) in wanted.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[wanted.len()]
}
