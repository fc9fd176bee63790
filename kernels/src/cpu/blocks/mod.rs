//! Weights in the blocks of quantised files, multiplied as they are.
//!
//! A block is some consecutive values of one row with their scales ([`hwprofiles::DType::block`]).
//! A panel of [`PANEL`](crate::PANEL) rows keeps the bytes of its rows' blocks and interleaves
//! them: where a file has a row's scale, the panel has the scales of all sixteen rows, and where a
//! file has four bytes of numbers, the panel has those four bytes of each row. So no bit is lost or
//! added, one vector register has the same four bytes of sixteen rows, and each of its lanes sums
//! one output.
//!
//! - `layout` says which bytes of a block stay together, and interleaves them;
//! - `decode` is the definition of each format: bytes of a block to values;
//! - `lanes` has the operations of 256-bit and of 512-bit vectors that the kernels need;
//! - `formats` unpacks a group of 32 columns of sixteen rows, format by format;
//! - `input` rounds x to the integers that are multiplied;
//! - `tile` multiplies, and `expand` writes bf16 for AMX.

mod decode;
mod expand;
mod formats;
mod input;
mod lanes;
mod layout;
mod tile;

pub use decode::{dequantise, moderate_scales};
pub(crate) use expand::expand_block_panel;
pub(crate) use input::{BlockInstructions, BlockRows, row_floats};
pub(crate) use layout::{BlockLayout, WidePanel};
pub(crate) use tile::{BlockTile, TILE_ROWS};
