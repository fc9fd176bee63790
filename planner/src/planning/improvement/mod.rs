//! The search around a placement, with the simulator as the judge.
//!
//! The integer program adds up costs of layers: it does not see which fetch hides behind which
//! computation. So the best placements are edited, and the edits are simulated. First every other
//! placement of a layer is simulated alone, with only its neighbours ([`slopes`]). That tells what
//! each costs or gains in time and in bytes of each memory, like dual prices. Then edits are
//! combined ([`exchanges`]): the ones that gain most are made for as many layers as fit, where the
//! cheapest others make room.

mod edits;
mod exchanges;
mod improver;
mod judge;
mod slopes;

pub use edits::single_edits;
pub(crate) use improver::Improver;
