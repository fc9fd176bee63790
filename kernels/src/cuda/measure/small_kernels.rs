//! Calls of small kernels for one token of a model.

use super::arena::OperandArena;
use super::placed_calls::{OperandBuffers, PlacedCalls};
use super::work::SmallKernel;
use crate::cpu::PANEL;
use crate::cuda::calls::{self, GpuRows, NormOperands, PagedCache, Rotation};
use crate::runtime::KernelError;

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
        SmallKernel::Rotation => rotation(operands),
        SmallKernel::Append => append(operands),
        SmallKernel::Activation => activation(operands),
        SmallKernel::Addition => addition(operands),
    }
}

/// The first buffer has x, the second the result. The weights are in the arena.
fn norm(arena: &OperandArena, operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    let buffers = vec![operands.random(4 * COLUMNS)?, operands.random(2 * COLUMNS)?];
    let call = |norm: usize| {
        let gamma = arena.values(4 * norm * COLUMNS, COLUMNS);
        let (x, y) = (buffers[0].values(), buffers[1].values());
        vec![calls::rms_norm(1, NormOperands { x, delta: None, y, gamma, epsilon: EPSILON })]
    };
    let turns = (0..NORMS.min(arena.weights() / (4 * COLUMNS))).map(call).collect();
    Ok(PlacedCalls { turns, buffers })
}

/// Values of a row of queries, keys and values.
const ROW: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;

fn rotation(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    const HALF: usize = HEAD_DIM / 2;
    let angles = || (0..HALF).map(|i| 1e4f32.powf(-(i as f32) / HALF as f32));
    let table: Vec<_> = angles().map(f32::cos).chain(angles().map(f32::sin)).collect();
    let buffers = vec![operands.random(2 * ROW)?, operands.floats(&table)?, operands.integers(&[0])?];
    let table = buffers[1].values();
    let (cosines, sines) = (table.first(HALF), table.from(HALF));
    let rotation = Rotation { cosines, sines, half: HALF, interleaved: false };
    let (row, position) = (buffers[0].values(), buffers[2].values());
    let call = calls::rope(row, ROW, HEADS + KV_HEADS, HEAD_DIM, rotation, position);
    Ok(PlacedCalls { turns: vec![vec![call]], buffers })
}

fn append(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    let half = KV_HEADS * POSITIONS * HEAD_DIM;
    let buffers = vec![
        operands.random(2 * ROW)?,
        operands.random(2 * 2 * half)?,
        operands.integers(&[0])?,
        operands.integers(&[POSITIONS as i32 - 1])?,
    ];
    let (row, cache, first) = (buffers[0].values(), buffers[1].values(), buffers[2].values());
    let cache = PagedCache {
        keys: cache.first(half),
        values: cache.from(half),
        table: first,
        pages_per_sequence: 1,
        page: POSITIONS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
    };
    let keys = row.from(HEADS * HEAD_DIM);
    let rows = GpuRows { keys, values: keys.from(KV_HEADS * HEAD_DIM), stride: ROW };
    let call = calls::append(cache, rows, first, buffers[3].values(), None);
    Ok(PlacedCalls { turns: vec![vec![call]], buffers })
}

/// Gate and up alternate in panels, as the executor stores their weights.
fn activation(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    let buffers = vec![operands.random(2 * 2 * INNER)?, operands.random(2 * INNER)?];
    let (up, inner) = (buffers[0].values(), buffers[1].values());
    let call = calls::silu_mul(inner, up, up.from(PANEL), 2 * PANEL, INNER / PANEL, PANEL);
    Ok(PlacedCalls { turns: vec![vec![call]], buffers })
}

fn addition(operands: &OperandBuffers) -> Result<PlacedCalls, KernelError> {
    let buffers = vec![operands.random(4 * COLUMNS)?, operands.random(2 * COLUMNS)?];
    let call = calls::add(buffers[0].values(), buffers[1].values());
    Ok(PlacedCalls { turns: vec![vec![call]], buffers })
}
