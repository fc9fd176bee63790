//! What a machine can run, how fast, and what would make it faster.

mod described_machine;
mod line_words;
mod machine_line;

pub use described_machine::AdvisedMachine;

use crate::error::{OrError, Result};

impl AdvisedMachine {
    /// The machine that a line of words describes: parts by their names, sizes, modules, a link.
    /// What it leaves out is assumed, and [`AdvisedMachine::assumed`] says so.
    ///
    /// ```
    /// let machine = fulcrum::AdvisedMachine::from_words("2x RTX 3090, EPYC 7543, 256 GB")?;
    /// assert_eq!(machine.machine.identical_gpus().len(), 2);
    /// # Ok::<(), fulcrum::Error>(())
    /// ```
    ///
    /// # Errors
    /// A word that nobody knows, or nothing to compute with: the error says what was understood,
    /// what is missing, and the nearest names.
    pub fn from_words(line: &str) -> Result<Self> {
        machine_line::read_line(line).or_input()?.compose()
    }
}
