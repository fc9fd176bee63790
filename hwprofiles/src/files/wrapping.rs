//! Texts in lines of a terminal's width.

/// Columns of a terminal.
pub const TERMINAL_COLUMNS: usize = 80;

/// `head` and `text` in lines of at most `width` columns, broken between words. Later lines begin
/// with `indent` blanks. A word that is longer than a line is cut; line ends, tabs and control
/// characters are blanks.
pub fn wrapped(head: &str, text: &str, indent: usize, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), head.to_owned());
    let mut is_begun = false;
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    for word in words.flat_map(|word| pieces(word, width - indent)) {
        let length = line.chars().count() + usize::from(is_begun) + word.chars().count();
        if length > width && is_begun {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line += &word;
        is_begun = true;
    }
    lines.push(line);
    lines
}

/// Ascending numbers as ranges: `0–3, 7`.
pub fn number_ranges(numbers: &[u64]) -> String {
    let text = |run: &[u64]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}–{last}"),
        [] => String::new(),
    };
    let runs = numbers.chunk_by(|number, next| number + 1 == *next);
    runs.map(text).collect::<Vec<_>>().join(", ")
}

/// Cuts a word that is longer than a line.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(width).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_cut_longer_words() {
        assert_eq!(wrapped("", "one two\tthree", 0, 7), ["one two", "three"]);
        assert_eq!(wrapped("a: ", "one two three", 2, 8), ["a: one", "  two", "  three"]);
        assert_eq!(wrapped("", "sevenletters to", 0, 5), ["seven", "lette", "rs to"]);
        assert_eq!(wrapped("", "naïve naïve", 0, 11), ["naïve naïve"]);
        assert_eq!(wrapped("", "", 0, 7), [""]);
    }
}
