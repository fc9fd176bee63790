//! Calls of small kernels for one token of a model, and of those of a mixture of experts.

use super::arena::OperandArena;
use super::placed_calls::{OperandBuffers, PlacedCalls};
use super::work::{GROUPED_PRODUCT, SmallKernel};
use crate::cpu::PANEL;
use crate::cuda::calls::{
    self, EnteringRows, ExpertMatrices, ExpertRouting, NormOperands, PagedCache, Rotation,
};
use crate::runtime::KernelError;
use hwprofiles::DType;

/// Values of the residual stream, as an 8B model has.
pub(super) const COLUMNS: usize = 4096;
/// Values between the products of its feed-forward network.
const INNER: usize = 14_336;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 128;
/// Positions of its cache.
const POSITIONS: usize = 128;
/// Norms with other weights, which a model reads from memory: 8 MiB of them.
const NORMS: usize = 512;
pub(super) const EPSILON: f32 = 1e-5;

/// Prepares calls of `kernel`.
pub(super) fn place(
    kernel: SmallKernel,
    arena: &OperandArena,
    operands: &OperandBuffers,
) -> Result<PlacedCalls, KernelError> {
    match kernel {
        SmallKernel::Norm => norm(arena, operands),
        SmallKernel::Entry => entry(operands),
        SmallKernel::Activation => activation(operands),
    }
}

/// The first buffer has x, the second the result, the third what is added: zeros, since x must not
/// grow. The weights are in the arena.
fn norm(arena: &OperandArena, operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    let zeros = operands.floats(&[0.0; COLUMNS / 2])?;
    let buffers = vec![operands.random(4 * COLUMNS)?, operands.random(2 * COLUMNS)?, zeros];
    let call = |norm: usize| {
        let gamma = arena.values(4 * norm * COLUMNS, COLUMNS);
        let [x, y, delta] = [0, 1, 2].map(|buffer| &buffers[buffer]);
        let (x, y, delta) = (x.values(), y.values(), Some(delta.values()));
        vec![calls::rms_norm(1, NormOperands { x, delta, y, gamma, epsilon: EPSILON })]
    };
    let turns = (0..NORMS.min(arena.weights() / (4 * COLUMNS))).map(call).collect();
    Ok(PlacedCalls::of_kernels(turns, buffers))
}

/// Values of a row of queries, keys and values.
const ROW: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;

fn entry(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    const HALF: usize = HEAD_DIM / 2;
    let of_cache = KV_HEADS * POSITIONS * HEAD_DIM;
    let angles = || (0..HALF).map(|i| 1e4f32.powf(-(i as f32) / HALF as f32));
    let table: Vec<_> = angles().map(f32::cos).chain(angles().map(f32::sin)).collect();
    // A number of its sequence, of its page and of its position.
    let first = operands.integers(&[0])?;
    let buffers =
        vec![operands.random(2 * ROW)?, operands.floats(&table)?, first, operands.random(2 * 2 * of_cache)?];
    let (row, table, first) = (buffers[0].values(), buffers[1].values(), buffers[2].values());
    let cache = buffers[3].values();
    let (cosines, sines) = (table.first(HALF), table.from(HALF));
    let cache = PagedCache {
        keys: cache.first(of_cache),
        values: cache.from(of_cache),
        table: first,
        pages_per_sequence: 1,
        page: POSITIONS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
    };
    let rows = EnteringRows {
        qkv: row,
        stride: ROW,
        heads: HEADS,
        norms: None,
        rotation: Some(Rotation { cosines, sines, half: HALF, interleaved: false }),
    };
    let call = calls::enter_heads(cache, rows, first, first, None);
    Ok(PlacedCalls::of_kernels(vec![vec![call]], buffers))
}

/// Gate and up alternate in panels, as the executor stores their weights.
fn activation(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    let buffers = vec![operands.random(2 * 2 * INNER)?, operands.random(2 * INNER)?];
    let (up, inner) = (buffers[0].values(), buffers[1].values());
    let call = calls::silu_mul(inner, up, up.from(PANEL), 2 * PANEL, INNER / PANEL, PANEL);
    Ok(PlacedCalls::of_kernels(vec![vec![call]], buffers))
}

/// The choice of a token's experts, their activation, and the sum of their results.
pub(super) fn mixture(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    const EXPERTS: usize = 128;
    const EACH: usize = 8;
    const HIDDEN: usize = 2048;
    const OF_EXPERT: usize = 768;
    let buffers = vec![
        operands.random(4 * EXPERTS)?,
        operands.room(ExpertRouting::bytes(1, EXPERTS, EACH))?,
        operands.random(2 * 2 * EACH * OF_EXPERT)?,
        operands.random(2 * EACH * OF_EXPERT)?,
        operands.random(2 * EACH * HIDDEN)?,
        operands.room(2 * HIDDEN)?,
    ];
    let routing = ExpertRouting::new(buffers[1].values(), 1, EXPERTS, EACH);
    let (up, inner) = (buffers[2].values(), buffers[3].values());
    let panels = EACH * OF_EXPERT / PANEL;
    let mut turn = routing.choose(buffers[0].values(), true);
    turn.push(calls::silu_mul(inner, up, up.from(PANEL), 2 * PANEL, panels, PANEL));
    turn.push(routing.sum(buffers[5].values(), buffers[4].values(), 0..EXPERTS, false));
    Ok(PlacedCalls::of_kernels(vec![turn], buffers))
}

/// Many pairs of tokens and experts. The matrices are in the arena.
pub(super) fn grouped_product(
    arena: &OperandArena,
    operands: &OperandBuffers,
) -> Result<PlacedCalls, KernelError> {
    const EXPERTS: usize = 32;
    const EACH: usize = 2;
    let [pairs, rows, columns] = GROUPED_PRODUCT.map(|size| size as usize);
    let (tokens, bytes) = (pairs / EACH, 2 * rows * columns);
    if EXPERTS * bytes > arena.weights() || 2 * pairs * rows.max(columns) > arena.activations() {
        return Err(KernelError::Gpu {
            what: "a product of experts".to_owned(),
            reason: "its operands are too large".to_owned(),
        });
    }
    let buffers = vec![
        operands.random(4 * tokens * EXPERTS)?,
        operands.room(ExpertRouting::bytes(tokens, EXPERTS, EACH))?,
    ];
    let routing = ExpertRouting::new(buffers[1].values(), tokens, EXPERTS, EACH);
    let matrices = ExpertMatrices {
        first: 0,
        shape: (DType::Bf16, rows, columns),
        bytes: (0..EXPERTS).map(|expert| arena.values(expert * bytes, bytes)).collect(),
    };
    let x = arena.values(arena.x_at(), tokens * columns);
    let turn = routing.multiply(arena.values(arena.y_at(), pairs * rows), x, &matrices)?;
    let before = routing.choose(buffers[0].values(), true);
    Ok(PlacedCalls { before, ..PlacedCalls::of_kernels(vec![turn], buffers) })
}
