//! Runs with a GPU. Where there is none, tests start this program again with a stand-in for the
//! driver, which runs our kernels' text on the host, with streams in every order that events allow.

pub mod agreement;
mod experts;
mod failing;
mod families;
mod graphs;
mod orders;
#[path = "../../../../kernels/tests/stand_in/mod.rs"]
mod stand_in;
