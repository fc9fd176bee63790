//! The `fulcrum` command as its users meet it: every test runs the program in a folder of its own.

mod bad_input;
mod choosing;
mod column;
mod documents;
mod exporting;
mod fitting;
mod gguf;
mod gridding;
mod halving;
mod killed;
mod machines;
mod output;
mod place;
mod predicting;
mod rebalancing;
mod reference;
mod reporting;
mod reproducing;
mod running;
mod serving;
mod several_gpus;
mod sizing;
mod speculation;
mod sweeping;
mod training;
mod what_if;
