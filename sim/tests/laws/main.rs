//! Laws of simulated steps and runs: on made-up programs, on lowered placements, and over whole runs.

#[path = "../../../planner/tests/machine/mod.rs"]
mod machine;

mod effort;
mod expert_loads;
mod fleets;
mod launches;
mod literal;
mod lowered;
mod made_up;
mod pictures;
mod queues;
mod rebalancing;
mod runs;
mod second_level;
mod serving;
mod serving_pictures;
mod speculation;
mod swapping;
mod tables;
mod training;
