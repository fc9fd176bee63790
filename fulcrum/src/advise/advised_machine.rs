//! A machine that advice is given for.

use crate::error::{OrError, Result};
use hwprofiles::{Bytes, Composition, DeviceKind, Library, Machine, MemoryId, PartNames, UnderstoodMachine};

/// What the operating system and the programs beside the engine hold of a host's memory. Prior 1 to
/// 4 GB: a server needs the least, Windows with a browser the most.
const HELD_BY_SYSTEM: Bytes = Bytes::new(2_000_000_000);

/// Of a host's memory of this size or more, what the system holds is not listed with what is
/// assumed: it changes little there.
const LARGE: Bytes = Bytes::new(64_000_000_000);

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

    /// What is assumed, with what the system holds of a memory that is not large.
    pub(super) fn all_assumed(&self) -> Vec<String> {
        let small = self.machine.memory_ids().find(|&id| {
            let capacity = self.machine.memory(id).capacity.value;
            capacity < LARGE && left_by_system(&self.machine, id) < capacity
        });
        let held = small.map(|_| format!("{HELD_BY_SYSTEM} of memory for the system"));
        self.assumed.iter().cloned().chain(held).collect()
    }

    /// A machine that was measured or that a file describes.
    pub fn from_machine(machine: Machine) -> Self {
        Self { parts: vec![machine.name.clone()], assumed: vec![], machine, composition: None }
    }
}

/// What an engine may fill of a memory: all of a GPU's; of a CPU's, what the system does not hold.
/// An Apple machine in words has only the memory that macOS lends, so nothing is taken off there.
pub(super) fn left_by_system(machine: &Machine, memory: MemoryId) -> Bytes {
    let capacity = machine.memory(memory).capacity.value;
    let is_hosts =
        machine.devices.iter().any(|device| device.kind == DeviceKind::Cpu && device.memory == memory);
    match is_hosts && !machine.name.contains("apple") {
        true => capacity.saturating_sub(HELD_BY_SYSTEM),
        false => capacity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_holds_a_part_of_a_hosts_memory_and_none_of_a_gpus() {
        let left = |line: &str| {
            let machine = AdvisedMachine::from_words(line).unwrap().machine;
            let left = machine.memory_ids().map(|id| left_by_system(&machine, id));
            (left.collect::<Vec<_>>(), machine)
        };
        let (bytes, machine) = left("RTX 3060 12GB, Ryzen 5 5600, 16 GB DDR4-3200");
        assert!(bytes.contains(&Bytes::new(14_000_000_000)), "{bytes:?}");
        assert!(machine.memories.iter().any(|gpus| bytes.contains(&gpus.capacity.value)), "{bytes:?}");
        let (bytes, machine) = left("Apple M1, 16 GB");
        assert_eq!(bytes, machine.memories.iter().map(|own| own.capacity.value).collect::<Vec<_>>());
        for (line, told) in
            [("Ryzen 5 5600, 32 GB", true), ("EPYC 9355, 768 GB", false), ("M1, 16 GB", false)]
        {
            let assumed = AdvisedMachine::from_words(line).unwrap().all_assumed();
            assert_eq!(assumed.iter().any(|it| it == "2 GB of memory for the system"), told, "{line}");
        }
    }
}
