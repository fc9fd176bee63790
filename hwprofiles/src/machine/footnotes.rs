//! The sources of numbers, listed below the table that shows them.

use crate::files::{TERMINAL_COLUMNS, wrapped};
use crate::units::Provenance;
use std::fmt;

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
            writeln!(f, "{}", paragraph(&format!("{mark:>5} "), text, 6))?;
        }
        Ok(())
    }
}

/// `head` and `text` in the lines of a terminal; later lines are indented.
pub(crate) fn paragraph(head: &str, text: &str, indent: usize) -> String {
    wrapped(head, text, indent, TERMINAL_COLUMNS).join("\n")
}
