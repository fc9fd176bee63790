//! What a machine can run, how fast, and what would make it faster.

mod advice_row;
mod advice_text;
mod advised_engine;
mod answer;
mod described_machine;
mod engine_command;
mod line_words;
mod machine_line;
mod model_catalog;
mod placing;
mod prediction_band;
mod question;
mod upgrade;

pub use advice_row::AdviceRow;
pub use advised_engine::AdvisedEngine;
pub use answer::{Advice, LeftOutModel, advise};
pub use described_machine::AdvisedMachine;
pub use placing::PlacementClass;
pub use question::{AdviceQuestion, Purpose, token_count};
pub use upgrade::{Upgrade, UpgradePrices};

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
