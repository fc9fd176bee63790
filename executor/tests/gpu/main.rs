//! Runs with a GPU: where there is none, on a stand-in for the driver that runs our kernels' text on the host, with
//! streams in every order that events allow.

#[path = "../runs/rig.rs"]
#[allow(dead_code, reason = "half of it is for devices of the host")]
mod rig;
#[path = "../../../kernels/tests/stand_in/mod.rs"]
mod stand_in;

mod agreement;
mod experts;
mod failing;
mod graphs;
mod orders;
