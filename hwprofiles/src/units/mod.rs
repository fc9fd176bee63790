//! Numbers with their units and sources: quantities, ratios, number formats, provenance.

mod checked;
mod dtype;
mod nearest;
mod provenance;
mod quantities;
mod ratio;
mod stated;
mod text;

pub(crate) use checked::{Checked, checked, checked_option, distinct, positive};
pub use dtype::{BlockSize, DType, GROUP};
pub(crate) use nearest::{ComparedWord, plain_word};
pub use nearest::{edits_between, nearest, nearest_key, nearest_name};
pub use provenance::{Confidence, Provenance, Sourced};
pub use quantities::{
    Bytes, BytesPerSec, Dollars, Elements, ElementsPerSec, Flop, FlopPerByte, FlopPerSec, Hertz, Joules,
    RequestsPerSec, Seconds, Tokens, Watts, Years,
};
pub use ratio::Ratio;
pub(crate) use stated::stated;
pub use text::UnitError;
