//! The sources of numbers, listed below the table that shows them.

use crate::units::Provenance;
use std::fmt;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Sources in the order of their first mention. A table says `datasheet [2]`, and the list at its
/// end gives the source.
#[derive(Default)]
pub(crate) struct Footnotes(Vec<String>);

impl Footnotes {
    /// The kind of a source and its number.
    pub fn cite(&mut self, source: &Provenance) -> String {
        format!("{} {}", source.word(), self.mark(source))
    }

    /// The number of a source.
    pub fn mark(&mut self, source: &Provenance) -> String {
        let text = match source {
            // Numbers of one origin differ in their spread only.
            Provenance::Measured { date, command, .. } => format!("measured {date} by `{command}`"),
            other => other.to_string(),
        };
        let place = self.0.iter().position(|known| *known == text).unwrap_or_else(|| {
            self.0.push(text);
            self.0.len() - 1
        });
        format!("[{}]", place + 1)
    }
}

impl fmt::Display for Footnotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, text) in self.0.iter().enumerate() {
            let mark = format!("[{}]", index + 1);
            writeln!(f, "{}", wrapped(text, &format!("{mark:>5} "), 6))?;
        }
        Ok(())
    }
}

/// `head` and `text` in lines of at most 80 columns; later lines are indented.
pub(crate) fn wrapped(text: &str, head: &str, indent: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), head.to_owned());
    let mut fresh = true;
    for word in text.split_whitespace().flat_map(|word| pieces(word, WIDTH - indent)) {
        let length = line.chars().count() + usize::from(!fresh) + word.chars().count();
        if length > WIDTH && !fresh {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line += &word;
        fresh = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// Cuts a word that is longer than a line.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(width).map(|piece| piece.iter().collect()).collect()
}
