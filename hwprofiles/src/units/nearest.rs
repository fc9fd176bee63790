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
    let mut words: Vec<_> =
        known.into_iter().map(|word| (edits(&wanted, plain_word(word).chars()), word)).collect();
    words.sort_by_key(|(edits, _)| *edits);
    words.into_iter().take(NAMED).map(|(_, word)| word).collect()
}

/// Longer texts are compared by their first letters only.
const LONGEST: usize = 64;

/// The one of `names` that is most likely meant by `text`: it takes the fewest single-letter edits,
/// at most a third of the text's letters. Case does not count.
pub fn nearest_name<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let text = text.to_lowercase();
    let most = text.chars().count() / 3;
    let near = |name: &'n str| (edits_between(&text, &name.to_lowercase()), name);
    let near = names.into_iter().map(near).filter(|(edits, _)| *edits <= most);
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// The known key that is most likely meant by the unknown `key`: the nearest name, one that `key`
/// begins with, or one of the same meaning.
pub fn nearest_key<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    const LEAST: usize = 3;
    const ALIKE: [(&str, &str); 6] = [
        ("cost", "price"),
        ("costs", "price"),
        ("format", "dtype"),
        ("formats", "dtype"),
        ("quant", "dtype"),
        ("quantization", "dtype"),
    ];
    let begins = || {
        let begun = known.iter().filter(|known| known.len() >= LEAST && key.starts_with(**known));
        begun.max_by_key(|known| known.len()).copied()
    };
    let alike = || {
        let (_, other) = ALIKE.into_iter().find(|(word, _)| *word == key)?;
        known.contains(&other).then_some(other)
    };
    nearest_name(key, known.iter().copied()).or_else(begins).or_else(alike)
}

/// The single-letter edits between two words.
pub fn edits_between(one: &str, other: &str) -> usize {
    edits(&one.chars().take(LONGEST).collect::<Vec<_>>(), other.chars())
}

/// A word that is compared with many others.
#[derive(Debug)]
pub(crate) struct ComparedWord {
    /// Number of its letters.
    length: usize,
    /// The first [`LONGEST`] of them.
    letters: Vec<char>,
    /// A bit for each of the letters that it has; some share one.
    kinds: u64,
}

impl ComparedWord {
    pub(crate) fn new(word: &str) -> Self {
        let letters: Vec<char> = word.chars().take(LONGEST).collect();
        let kinds = letters.iter().fold(0, |kinds, &letter| kinds | 1 << (u32::from(letter) % u64::BITS));
        Self { length: word.chars().count(), letters, kinds }
    }

    /// The single-letter edits to `other` where they are at most `most`.
    pub(crate) fn edits_within(&self, other: &Self, most: usize) -> Option<usize> {
        // Each letter that only one of the words has takes an edit, and so does each letter more.
        let alone = |one: u64, other: u64| (one & !other).count_ones() as usize;
        let kinds = alone(self.kinds, other.kinds).max(alone(other.kinds, self.kinds));
        if kinds.max(self.length.abs_diff(other.length)) > most {
            return None;
        }
        Some(edits(&self.letters, other.letters.iter().copied())).filter(|edits| *edits <= most)
    }
}

/// Levenshtein's distance: inserted, removed and replaced letters.
fn edits(wanted: &[char], word: impl Iterator<Item = char>) -> usize {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (above, letter) in word.enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_found_and_a_strange_one_is_not() {
        let names = ["llama-3.1-8b", "qwen3-8b", "gpt-oss-20b"];
        assert_eq!(nearest_name("Qwen3-8", names), Some("qwen3-8b"));
        assert_eq!(nearest_name("gptoss-20b", names), Some("gpt-oss-20b"));
        assert_eq!(nearest_name("wholly-different", names), None);
        assert_eq!(edits_between("kitten", "sitting"), 3);
    }

    #[test]
    fn few_edits_are_those_of_whole_words() {
        let words = ["", "a", "4090", "rtx4090", "rx4090", "kitten", "sitting", "m2ultra", "µµ"];
        for (one, other) in words.iter().flat_map(|one| words.map(|other| (*one, other))) {
            let [first, second] = [one, other].map(ComparedWord::new);
            for most in 0..8 {
                let wanted = Some(edits_between(one, other)).filter(|edits| *edits <= most);
                assert_eq!(first.edits_within(&second, most), wanted, "{one}, {other}");
            }
        }
    }

    #[test]
    fn a_key_is_also_known_by_its_beginning_and_its_meaning() {
        let known = ["batch", "prompt_tokens", "price"];
        assert_eq!(nearest_key("bach", &known), Some("batch"));
        assert_eq!(nearest_key("batch_size", &known), Some("batch"));
        assert_eq!(nearest_key("cost", &known), Some("price"));
        assert_eq!(nearest_key("format", &["model", "dtype"]), Some("dtype"));
        assert_eq!(nearest_key("colour", &known), None);
    }
}
