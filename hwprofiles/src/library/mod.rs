//! Where profiles come from: the shipped ones, files, and `this` machine.

mod lookup;
mod profile;
mod sheet;
mod shipped;
mod spelling;
mod summary;

pub use lookup::Library;
pub use profile::{Profile, machine_schema};
pub use sheet::{PartSheet, SheetEntry};
pub use shipped::shipped;
pub(crate) use shipped::shipped_profile;
pub(crate) use spelling::{GPU_BRANDS, with_sizes};
pub use spelling::{shipped_called, similar_names};
