//! What a measurement of this very machine promises.

mod gpu;
mod measuring;
