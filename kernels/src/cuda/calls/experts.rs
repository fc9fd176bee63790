//! Mixtures of experts: which experts tokens go to, products by their matrices, and their sum.
//!
//! Who chose which experts stays on the GPU: a call's grid is as large as it can be, and blocks without work end.

use super::call::{KernelCall, count};
use super::product::packed;
use super::slice::GpuSlice;
use crate::cpu::PANEL;
use crate::cuda::program::GpuProgram;
use crate::runtime::KernelError;
use bytemuck::{Pod, Zeroable};
use hwprofiles::DType;
use std::ops::Range;

/// Rows of a tile of pairs, and of a matrix.
const TILE: usize = 64;
/// Matrices that one call takes.
const MATRICES: usize = 128;

/// Where so many tokens go. Each token has as many *pairs* as it has experts, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct ExpertRouting {
    tokens: usize,
    experts: usize,
    per_token: usize,
    ids: GpuSlice<i32>,
    shares: GpuSlice<f32>,
    order: GpuSlice<i32>,
    tiles: GpuSlice<i32>,
}

/// The same matrix of experts that follow each other.
#[derive(Debug, Clone)]
pub struct ExpertMatrices {
    /// Number of the first expert.
    pub first: usize,
    /// Format, rows, columns of each.
    pub shape: (DType, usize, usize),
    /// Each packed as [`crate::Weights`].
    pub bytes: Vec<GpuSlice<u8>>,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RouteArguments {
    scores: u64,
    ids: u64,
    shares: u64,
    tokens: i32,
    count: i32,
    per_token: i32,
    normalised: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GroupArguments {
    ids: u64,
    order: u64,
    tiles: u64,
    pairs: i32,
    count: i32,
    most: i32,
    unused: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct PerPairArguments {
    x: u64,
    y: u64,
    ids: u64,
    of: MatrixTable,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GroupedArguments {
    x: u64,
    y: u64,
    order: u64,
    tiles: u64,
    of: MatrixTable,
}

/// The matrices of experts `first` and those that follow it, `count` of them; a row of x serves `per_row` pairs.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct MatrixTable {
    rows: i32,
    columns: i32,
    per_row: i32,
    first: i32,
    count: i32,
    unused: i32,
    w: [u64; MATRICES],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SumArguments {
    made: u64,
    ids: u64,
    shares: u64,
    out: u64,
    values: u64,
    columns: i32,
    per_token: i32,
    first: i32,
    count: i32,
    adds: i32,
    unused: i32,
}

impl ExpertRouting {
    /// The most experts that there can be.
    pub const MOST: usize = 1024;

    /// Bytes that [`ExpertRouting::new`] takes.
    pub fn bytes(tokens: usize, experts: usize, per_token: usize) -> usize {
        let tiles = tiles(tokens * per_token, experts);
        size_of::<i32>() * (2 * tokens * per_token + tiles * (TILE + 1))
    }

    /// Of `tokens` tokens to `per_token` of so many experts each, in `room`; not known until [`ExpertRouting::choose`].
    ///
    /// # Panics
    /// Where there are no more than 1024 experts for as many as a token has, or too little room.
    pub fn new(room: GpuSlice<u8>, tokens: usize, experts: usize, per_token: usize) -> Self {
        assert!(
            (1..=experts).contains(&per_token) && experts <= Self::MOST,
            "{per_token} of {experts} experts"
        );
        let pairs = tokens * per_token;
        let (ids, rest) = (room.cast::<i32>().first(pairs), room.cast::<i32>().from(pairs));
        let (shares, rest) = (rest.first(pairs).cast::<f32>(), rest.from(pairs));
        let tiles = tiles(pairs, experts);
        let (order, rest) = (rest.first(tiles * TILE), rest.from(tiles * TILE));
        Self { tokens, experts, per_token, ids, shares, order, tiles: rest.first(tiles) }
    }

    /// Pairs of a token and one of its experts.
    pub fn pairs(&self) -> usize {
        self.ids.len()
    }

    /// Whether a matrix is read for each pair of its own: where there are so few that hardly two have the same expert.
    fn is_sparse(&self) -> bool {
        self.pairs() <= self.experts
    }

    /// Calls that find each token's experts, those of the highest of its scores (of equal ones the first), and their shares:
    /// the softmax over all scores, or over those of its experts where they are `normalised`.
    pub fn choose(&self, scores: GpuSlice<f32>, normalised: bool) -> Vec<KernelCall> {
        let arguments = RouteArguments {
            scores: scores.holding(self.tokens * self.experts, "scores"),
            ids: self.ids.address,
            shares: self.shares.address,
            tokens: count(self.tokens),
            count: count(self.experts),
            per_token: count(self.per_token),
            normalised: normalised.into(),
        };
        // A warp for each token.
        let route =
            KernelCall::new(GpuProgram::Experts, "route", [self.tokens.div_ceil(8), 1, 1], 256, arguments);
        if self.is_sparse() {
            return vec![route];
        }
        let arguments = GroupArguments {
            ids: self.ids.address,
            order: self.order.address,
            tiles: self.tiles.address,
            pairs: count(self.pairs()),
            count: count(self.experts),
            most: count(self.tiles.len()),
            unused: 0,
        };
        vec![route, KernelCall::new(GpuProgram::Experts, "group", [1, 1, 1], 1024, arguments)]
    }

    /// Calls for y = x·Wᵀ for each pair with an expert among the `matrices`: W its expert's, x its token's row where x has a row
    /// for each token, else its own; pairs of other experts are left alone.
    ///
    /// # Errors
    /// As [`super::gemv`].
    ///
    /// # Panics
    /// Where the matrices' rows are no multiple of 16 or their columns none of 8.
    pub fn multiply(
        &self,
        y: GpuSlice<u16>,
        x: GpuSlice<u16>,
        matrices: &ExpertMatrices,
    ) -> Result<Vec<KernelCall>, KernelError> {
        let (dtype, rows, columns) = matrices.shape;
        assert!(rows.is_multiple_of(PANEL) && columns.is_multiple_of(8), "experts of {rows} × {columns}");
        let y = y.holding(self.pairs() * rows, "y");
        let x_rows = x.len() / columns;
        assert!(x_rows == self.tokens || x_rows == self.pairs(), "{x_rows} rows of {} tokens", self.tokens);
        let (x, per_row) =
            (x.aligned(16, "x"), count(if x_rows == self.tokens { self.per_token } else { 1 }));
        let calls = matrices.bytes.chunks(MATRICES).zip((matrices.first..).step_by(MATRICES));
        let call = |(bytes, first): (&[GpuSlice<u8>], usize)| {
            let mut w = [0; MATRICES];
            let names = match self.is_sparse() {
                true => ["gemv_experts_bf16", "gemv_experts_int8", "gemv_experts_int4"],
                false => ["grouped_bf16", "grouped_int8", "grouped_int4"],
            };
            let mut kernel = names[0];
            for (w, bytes) in w.iter_mut().zip(bytes) {
                (kernel, *w) = packed(names, dtype, rows, columns, *bytes)?;
            }
            let [first, here] = [first, bytes.len()].map(count);
            let of = MatrixTable {
                rows: count(rows),
                columns: count(columns),
                per_row,
                first,
                count: here,
                unused: 0,
                w,
            };
            Ok(if self.is_sparse() {
                let grid = [rows / PANEL, self.pairs(), 1];
                let arguments = PerPairArguments { x, y, ids: self.ids.address, of };
                KernelCall::new(GpuProgram::Gemv, kernel, grid, 256, arguments)
            } else {
                let grid = [self.tiles.len(), rows.div_ceil(TILE), 1];
                let (order, tiles) = (self.order.address, self.tiles.address);
                KernelCall::new(
                    GpuProgram::Grouped,
                    kernel,
                    grid,
                    128,
                    GroupedArguments { x, y, order, tiles, of },
                )
            })
        };
        calls.map(call).collect()
    }

    /// out = the sum of what the experts `which` `made` of each token's pairs, by their shares; added to what is there where
    /// it `adds`.
    pub fn sum(
        &self,
        out: GpuSlice<u16>,
        made: GpuSlice<u16>,
        which: Range<usize>,
        adds: bool,
    ) -> KernelCall {
        let columns = out.len() / self.tokens.max(1);
        let values = self.tokens * columns;
        let arguments = SumArguments {
            made: made.holding(self.pairs() * columns, "what experts made"),
            ids: self.ids.address,
            shares: self.shares.address,
            out: out.address,
            values: values as u64,
            columns: count(columns),
            per_token: count(self.per_token),
            first: count(which.start),
            count: count(which.len()),
            adds: adds.into(),
            unused: 0,
        };
        KernelCall::new(GpuProgram::Experts, "sum_experts", super::rows::blocks(values), 256, arguments)
    }
}

/// Tiles that pairs fill at most, each expert the last of its own only partly.
fn tiles(pairs: usize, experts: usize) -> usize {
    pairs / TILE + pairs.min(experts)
}
