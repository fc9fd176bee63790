//! Published results of other systems, and how each number is reproduced.

mod expression;
mod pattern;
mod publication;
mod rows;
mod scope;

pub use expression::Expression;
pub use pattern::{Filter, NamePattern};
pub use publication::{Constant, Publication, Resources, RowGroup, Unscored};
pub use rows::{PublishedRow, read_rows};
pub use scope::Scope;
