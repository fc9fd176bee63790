//! Sessions on real devices: agreement with transformers, and the laws of every run.

mod experts;
mod gguf;
mod golden;
mod laws;
mod pieces;
mod repeat;
mod rig;
mod scratch;
mod serving;
