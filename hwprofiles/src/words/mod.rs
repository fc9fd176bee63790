//! Machines in words: `RTX 4090, i7-14700K, 64 GB DDR5-6000`, `8x H200`.

mod cloud_instance;
mod described_machine;
mod line_words;
mod machine_line;

pub use described_machine::UnderstoodMachine;

use crate::files::ProfileError;
use crate::library::Library;
use crate::machine::Machine;

impl UnderstoodMachine {
    /// What `line` says: parts by their names, sizes, modules, a link. What it leaves out is
    /// assumed, and [`UnderstoodMachine::assumed`] says so.
    ///
    /// ```
    /// let words = hwprofiles::UnderstoodMachine::read("2x RTX 3090, EPYC 7543, 256 GB")?;
    /// assert_eq!(words.machine(1)?.identical_gpus().len(), 2);
    /// # Ok::<(), hwprofiles::ProfileError>(())
    /// ```
    ///
    /// # Errors
    /// A word that nobody knows, or nothing to compute with: the error says what was understood,
    /// what is missing, and the nearest names.
    pub fn read(line: &str) -> Result<Self, ProfileError> {
        machine_line::read_line(line)?.compose()
    }
}

impl Library {
    /// [`Library::machine_with`], or the machine that `name` describes in words.
    ///
    /// # Errors
    /// Those of both. One word that names nothing is a name that is not known; several are words
    /// that are not clear.
    pub fn machine_called(&self, name: &str, gpus: u64) -> Result<Machine, ProfileError> {
        let unknown = match self.machine_with(name, gpus) {
            Err(unknown @ ProfileError::Unknown { .. }) => unknown,
            found => return found,
        };
        let is_file = [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end));
        match UnderstoodMachine::read(name) {
            Ok(words) => words.machine(gpus),
            Err(unclear) if name.contains([' ', ',']) && !is_file => Err(unclear),
            Err(_) => Err(unknown),
        }
    }
}
