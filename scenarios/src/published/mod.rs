//! Published results, and how each is reproduced.

mod expression;
mod pattern;
mod publication;
mod rows;
mod scope;

pub use expression::Expression;
pub use pattern::{Filter, Pattern};
pub use publication::{Constant, Group, Publication, Resources, Unscored};
pub use rows::{PublishedRow, read_rows};
pub use scope::Scope;
