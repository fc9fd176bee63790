//! Laws of simulated steps, runs and serving days, tested on random inputs.

mod expert_loads;
mod fleets;
mod front_end;
mod launches;
mod layer_times;
mod lowered;
mod perfetto;
mod queueing;
mod random_programs;
mod rebalancing;
mod reference_engine;
mod resource_use;
mod runs;
mod saturating_prices;
mod second_level;
mod sequence_blocks;
mod serving;
mod speculation;
mod swapping;
mod timeline;
mod training;
