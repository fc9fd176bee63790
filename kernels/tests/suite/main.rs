//! The kernels against their definitions: one program for all tests that need no process of their
//! own.
#![allow(unsafe_code)]

mod attention;
mod blocks;
mod cuda_calls;
mod elementwise;
mod fence;
mod float8;
mod gemm;
#[path = "../host_gpu/mod.rs"]
mod host_gpu;
mod link;
#[path = "../noise/mod.rs"]
mod noise;
mod numeric;
mod stream;
