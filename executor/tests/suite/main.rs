//! Laws and agreement of runs, model files and services, on real devices.

mod cases;
mod experts;
mod gguf;
mod gguf_blocks;
mod gguf_experts;
mod gguf_families;
mod gguf_writer;
mod golden;
mod golden_files;
mod gpu;
mod laws;
mod model_folders;
mod mtp;
mod mxfp4;
mod pieces;
mod repeat;
mod rig;
mod scaled;
mod scratch;
mod serving;
mod speculative;
