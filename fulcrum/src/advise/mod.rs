//! What a machine can run, how fast, and what would make it faster.

mod advice_row;
mod advice_text;
mod advised_engine;
mod advised_machine;
mod answer;
mod engine_command;
mod model_catalog;
mod model_places;
mod placing;
mod prediction_band;
mod question;
mod upgrade;

pub use advice_row::AdviceRow;
pub use advised_engine::AdvisedEngine;
pub use advised_machine::AdvisedMachine;
pub use answer::{Advice, LeftOutModel, advise};
pub use model_places::PlacementClass;
pub use question::{AdviceQuestion, Purpose};
pub use upgrade::{Upgrade, UpgradePrices, WithoutGpus};
