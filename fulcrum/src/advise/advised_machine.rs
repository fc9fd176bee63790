//! A machine that advice is given for.

use crate::error::{OrError, Result};
use hwprofiles::{Composition, Library, Machine, PartNames, UnderstoodMachine};

/// A machine that advice is given for.
#[derive(Debug, Clone, PartialEq)]
pub struct AdvisedMachine {
    /// What it is made of, in words: `rtx-4090 24 GB`, `i7-14700k`.
    pub parts: Vec<String>,
    /// What nobody said and is assumed.
    pub assumed: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The parts that it is composed of; `None` for a measured host.
    pub(super) composition: Option<PartNames>,
}

impl AdvisedMachine {
    /// The machine that a line of words describes: see [`UnderstoodMachine::read`].
    ///
    /// ```
    /// let machine = fulcrum::AdvisedMachine::from_words("2x RTX 3090, EPYC 7543, 256 GB")?;
    /// assert_eq!(machine.machine.identical_gpus().len(), 2);
    /// # Ok::<(), fulcrum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`UnderstoodMachine::read`]; parts that do not go together.
    pub fn from_words(line: &str) -> Result<Self> {
        let UnderstoodMachine { parts, assumed, names } = UnderstoodMachine::read(line).or_input()?;
        Self::composed(names, parts, assumed)
    }

    /// The machine of `names`.
    pub(super) fn composed(names: PartNames, parts: Vec<String>, assumed: Vec<String>) -> Result<Self> {
        let composition = Composition { parts: names.clone(), ..Composition::default() };
        let machine = Library::default().compose(&composition).or_input()?;
        Ok(Self { parts, assumed, machine, composition: Some(names) })
    }

    /// A machine that was measured or that a file describes.
    pub fn from_machine(machine: Machine) -> Self {
        Self { parts: vec![machine.name.clone()], assumed: vec![], machine, composition: None }
    }
}
