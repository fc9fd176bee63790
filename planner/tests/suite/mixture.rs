//! A small mixture, and machines in words to place it on.

use crate::fixture::model;
use hwprofiles::{Composition, Library, Machine, UnderstoodMachine};
use scenarios::{Architecture, Experts, Model};

/// A small mixture whose first layer has no experts.
pub fn mixture(layers: u64) -> Model {
    let mut experts = Experts::new(8, 2, 128);
    experts.shared = 256;
    Model {
        name: "tiny-moe".into(),
        architecture: Architecture::Qwen3Moe,
        experts: Some(experts),
        ..model(layers, 256)
    }
    .with_dense_layers(1)
}

/// The machine of shipped parts that words describe.
pub fn described(words: &str) -> Machine {
    let words = UnderstoodMachine::read(words).expect("parts");
    let composition = Composition { parts: words.names, ..Composition::default() };
    Library::default().compose(&composition).expect("a machine")
}
