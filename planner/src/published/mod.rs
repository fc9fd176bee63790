//! The planners of published systems, in their own cost forms and with their own rates, for
//! comparison. Plans do not use them: [`crate::Rule`] has the same policies with a machine's rates,
//! priced by Fulcrum's cost model.

pub mod flexgen;
pub mod lia;
mod model_totals;
pub mod zero;
