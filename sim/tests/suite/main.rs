//! The integration tests of the simulator in one program.

mod beams;
mod cases;
mod energy;
mod every_model;
mod fair;
mod larger_machines;
mod launch_bound;
mod laws;
// The planner's tests and these have one machine and one set of placements.
#[path = "../../../planner/tests/suite/machine/mod.rs"]
mod machine;
mod one_device;
mod overlap;
mod published;
mod second_level;
mod shipped_gpus;
mod slo;
mod sockets;
mod swap;
mod tensor_parallel;
mod unequal_layers;
mod wires;
