//! Published results of other systems, and how each number is reproduced.

mod engine_flags;
mod expression;
mod llama_bench;
mod pattern;
mod public_constants;
mod public_runs;
mod publication;
mod rows;
mod scope;

pub use expression::Expression;
pub use llama_bench::BenchRun;
pub use pattern::{Filter, NamePattern};
pub use public_constants::PublicConstant;
pub use public_runs::{PublicMetric, PublicPoint, PublicSetup};
pub use publication::{Constant, Publication, Resources, RowGroup, Unscored};
pub use rows::{PublishedRow, read_rows};
pub use scope::Scope;

/// The id, the description (YAML) and the rows (CSV) of every publication of `published/`, by id.
pub const SHIPPED: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/published.rs"));
