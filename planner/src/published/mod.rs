//! The planners of published systems, in their own cost forms and with their own rates: what Fulcrum is compared
//! with. Nothing here is used to plan; [`crate::Rule`] has the same policies with a machine's rates, evaluated by
//! Fulcrum's cost model.

pub mod flexgen;
pub mod lia;
mod model_totals;
pub mod zero;
