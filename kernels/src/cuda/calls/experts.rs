//! Calls for mixtures of experts: routing, products with the experts' matrices, and their sum.
//!
//! The routing stays on the GPU. So a call's grid is as large as it could be, and blocks without
//! work end at once.

use super::call::{KernelCall, count};
use super::product::{GEMV_THREADS, by_format, packed};
use super::slice::GpuSlice;
use crate::cpu::PANEL;
use crate::cuda::program::GpuProgram;
use crate::runtime::KernelError;
use bytemuck::{Pod, Zeroable};
use hwprofiles::DType;
use std::ops::Range;

/// Rows of a matrix that a block multiplies.
const ROWS: usize = 128;
/// The most matrices of one call.
const MATRICES: usize = 128;

/// The routing of tokens to experts. A token has one *pair* for each of its experts; its pairs
/// follow each other.
#[derive(Debug, Clone, Copy)]
pub struct ExpertRouting {
    tokens: usize,
    experts: usize,
    per_token: usize,
    ids: GpuSlice<i32>,
    shares: GpuSlice<f32>,
    order: GpuSlice<i32>,
    tiles: GpuSlice<i32>,
    weighs_input: bool,
}

/// One matrix (the gate and up matrix, or the down matrix) of consecutive experts.
#[derive(Debug, Clone)]
pub struct ExpertMatrices {
    /// The index of the first expert.
    pub first: usize,
    /// Format, rows and columns of each matrix.
    pub shape: (DType, usize, usize),
    /// The bytes of each matrix, packed as [`crate::Weights`].
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
    kind: i32,
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
    of_tile: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct PerPairArguments {
    x: u64,
    y: u64,
    ids: u64,
    matrices: MatrixTable,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GroupedArguments {
    x: u64,
    y: u64,
    order: u64,
    tiles: u64,
    matrices: MatrixTable,
}

/// The matrices of `count` experts from `first` on. A row of x serves `per_row` pairs.
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

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BiasesArguments {
    y: u64,
    biases: u64,
    ids: u64,
    values: u64,
    columns: i32,
    stride: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct WeighPairsArguments {
    x: u64,
    shares: u64,
    values: u64,
    columns: i32,
    unused: i32,
}

impl ExpertRouting {
    /// The largest supported number of experts.
    pub const MOST: usize = 1024;

    /// Bytes that the routing takes.
    pub fn bytes(tokens: usize, experts: usize, per_token: usize) -> usize {
        let pairs = tokens * per_token;
        size_of::<i32>() * (2 * pairs + tiles(pairs, experts) * (pairs_of_tile(pairs, experts) + 1))
    }

    /// Room for the routing of `tokens` tokens to `per_token` of `experts` experts each.
    /// [`ExpertRouting::choose`] fills it.
    ///
    /// # Panics
    /// Where `per_token` is not between 1 and `experts`, where there are more than 1024 experts, or
    /// where `room` is too short.
    pub fn new(room: GpuSlice<u8>, tokens: usize, experts: usize, per_token: usize) -> Self {
        assert!(
            (1..=experts).contains(&per_token) && experts <= Self::MOST,
            "{per_token} of {experts} experts"
        );
        let pairs = tokens * per_token;
        let (ids, rest) = (room.cast::<i32>().first(pairs), room.cast::<i32>().from(pairs));
        let (shares, rest) = (rest.first(pairs).cast::<f32>(), rest.from(pairs));
        let (tiles, of_tile) = (tiles(pairs, experts), pairs_of_tile(pairs, experts));
        let (order, rest) = (rest.first(tiles * of_tile), rest.from(tiles * of_tile));
        Self { tokens, experts, per_token, ids, shares, order, tiles: rest.first(tiles), weighs_input: false }
    }

    /// The same with shares that weigh the inputs of experts ([`ExpertRouting::weigh`]) and not
    /// their results.
    #[must_use]
    pub fn weighing_input(self, weighs_input: bool) -> Self {
        Self { weighs_input, ..self }
    }

    /// The number of pairs of a token and one of its experts.
    pub fn pairs(&self) -> usize {
        self.ids.len()
    }

    /// Whether each pair reads its expert's matrix by itself, because there are so few pairs that
    /// hardly two have the same expert.
    fn is_sparse(&self) -> bool {
        self.pairs() <= self.experts
    }

    fn pairs_of_tile(&self) -> usize {
        pairs_of_tile(self.pairs(), self.experts)
    }

    /// Calls that find the experts of each token and their shares. A token's experts are those with
    /// its highest scores, of equal scores the first. The shares are the softmax over all scores
    /// or, where `normalised`, over the scores of the token's experts.
    pub fn choose(&self, scores: GpuSlice<f32>, normalised: bool) -> Vec<KernelCall> {
        self.chosen(scores, normalised.into())
    }

    /// As [`ExpertRouting::choose`], where the scores are the shares
    /// ([`super::weigh_experts`]).
    pub fn choose_weighed(&self, shares: GpuSlice<f32>) -> Vec<KernelCall> {
        self.chosen(shares, 2)
    }

    /// The kind of shares is one of those of `route`.
    fn chosen(&self, scores: GpuSlice<f32>, kind: i32) -> Vec<KernelCall> {
        let arguments = RouteArguments {
            scores: scores.holding(self.tokens * self.experts, "scores"),
            ids: self.ids.address,
            shares: self.shares.address,
            tokens: count(self.tokens),
            count: count(self.experts),
            per_token: count(self.per_token),
            kind,
        };
        // One warp for each token.
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
            of_tile: count(self.pairs_of_tile()),
        };
        vec![route, KernelCall::new(GpuProgram::Experts, "group", [1, 1, 1], 1024, arguments)]
    }

    /// Calls for y = x·Wᵀ for each pair whose expert is among the `matrices`. W is the expert's
    /// matrix. Where x has one row per token, x is the token's row, otherwise the pair's own row.
    /// Pairs of other experts are left alone.
    ///
    /// # Errors
    /// Those of [`super::gemv`].
    ///
    /// # Panics
    /// Where the rows of the matrices are not a multiple of 16, or their columns not a multiple of
    /// 8.
    pub fn multiply(
        &self,
        y: GpuSlice<u16>,
        x: GpuSlice<u16>,
        matrices: &ExpertMatrices,
    ) -> Result<Vec<KernelCall>, KernelError> {
        let (dtype, rows, columns) = matrices.shape;
        assert!(rows.is_multiple_of(PANEL) && columns.is_multiple_of(8), "experts of {rows} × {columns}");
        y.holding(self.pairs() * rows, "y");
        let y = y.aligned(16, "y");
        let x_rows = x.len() / columns;
        assert!(x_rows == self.tokens || x_rows == self.pairs(), "{x_rows} rows of {} tokens", self.tokens);
        let (x, per_row) =
            (x.aligned(16, "x"), count(if x_rows == self.tokens { self.per_token } else { 1 }));
        let calls = matrices.bytes.chunks(MATRICES).zip((matrices.first..).step_by(MATRICES));
        let call = |(bytes, first): (&[GpuSlice<u8>], usize)| {
            let mut w = [0; MATRICES];
            let names = match (self.is_sparse(), self.pairs_of_tile()) {
                (true, _) => by_format!("gemv_experts"),
                (false, TILE) => by_format!("grouped"),
                (false, _) => by_format!("grouped_tall"),
            };
            let mut kernel = names[0];
            for (w, bytes) in w.iter_mut().zip(bytes) {
                (kernel, *w) = packed(names, dtype, rows, columns, *bytes)?;
            }
            let [first, here] = [first, bytes.len()].map(count);
            let table = MatrixTable {
                rows: count(rows),
                columns: count(columns),
                per_row,
                first,
                count: here,
                unused: 0,
                w,
            };
            Ok(if self.is_sparse() {
                let grid = [rows / PANEL, 1, self.pairs()];
                let arguments = PerPairArguments { x, y, ids: self.ids.address, matrices: table };
                KernelCall::new(GpuProgram::Gemv { format: dtype }, kernel, grid, GEMV_THREADS, arguments)
            } else {
                let grid = [self.tiles.len(), rows.div_ceil(ROWS), 1];
                let (order, tiles) = (self.order.address, self.tiles.address);
                KernelCall::new(
                    GpuProgram::Grouped { format: dtype },
                    kernel,
                    grid,
                    128,
                    GroupedArguments { x, y, order, tiles, matrices: table },
                )
            })
        };
        calls.map(call).collect()
    }

    /// A call for y += b for each pair, b being the bias of its expert. `biases` has one of
    /// `columns` values for every expert, `stride` values apart.
    pub fn add_biases(
        &self,
        y: GpuSlice<u16>,
        biases: GpuSlice<f32>,
        stride: usize,
        columns: usize,
    ) -> KernelCall {
        let values = self.pairs() * columns;
        let arguments = BiasesArguments {
            y: y.holding(values, "y"),
            biases: biases.holding(super::call::extent(self.experts, stride, columns), "biases"),
            ids: self.ids.address,
            values: values as u64,
            columns: count(columns),
            stride: count(stride),
        };
        KernelCall::new(GpuProgram::Experts, "bias_experts", super::rows::blocks(values), 256, arguments)
    }

    /// A call for x *= the pair's share, for each pair's row of `columns` values. Where x is a
    /// product of the experts' inputs, this weighs the inputs.
    pub fn weigh(&self, x: GpuSlice<u16>, columns: usize) -> KernelCall {
        let values = self.pairs() * columns;
        let arguments = WeighPairsArguments {
            x: x.holding(values, "x"),
            shares: self.shares.address,
            values: values as u64,
            columns: count(columns),
            unused: 0,
        };
        KernelCall::new(GpuProgram::Mixture, "weigh_pairs", super::rows::blocks(values), 256, arguments)
    }

    /// out = the sum of the results `made` of each token's pairs, weighted by their shares, over
    /// the experts `which`. Where `adds`, the sum is added to `out`.
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
            shares: if self.weighs_input { 0 } else { self.shares.address },
            out: out.address,
            values: values as u64,
            columns: count(columns),
            per_token: count(self.per_token),
            first: count(which.start),
            count: count(which.len()),
            adds: adds.into(),
            unused: 0,
        };
        // A thread takes eight values at a time where they lie so.
        let blocks = super::rows::blocks(values.div_ceil(8));
        KernelCall::new(GpuProgram::Experts, "sum_experts", blocks, 256, arguments)
    }
}

/// Pairs of a tile, and of a tall one.
const TILE: usize = 64;
const TALL_TILE: usize = 128;

/// Tall tiles read the matrices half as often. They are worth it where experts have so many pairs
/// that little of their last tiles is empty.
fn pairs_of_tile(pairs: usize, experts: usize) -> usize {
    if pairs >= 2 * TALL_TILE * experts { TALL_TILE } else { TILE }
}

/// The most tiles that the pairs fill: the last tile of each expert may be partial.
fn tiles(pairs: usize, experts: usize) -> usize {
    pairs / pairs_of_tile(pairs, experts) + pairs.min(experts)
}
