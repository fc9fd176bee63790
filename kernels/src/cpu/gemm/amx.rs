//! Products with AMX tiles: blocking, and division into items of work.
//!
//! x is rounded to bf16 once, in the order in which tiles are loaded. 32 columns of a packed bf16
//! panel already lie in memory as a tile (see `weights`). Other weights are expanded to such tiles,
//! one block of a pair of panels at a time (see `expand`).
//!
//! A multiplication of tiles takes 16 cycles, and each needs a tile from a cache. So the first
//! level holds a pair of panels' block of weights, and the second level holds a block of columns of
//! all rows, and the sums of all rows for a few pairs of panels, as tiles. What comes next is
//! fetched meanwhile: the next pair's weights and each row's next columns. The cores that this was
//! measured on bring 15 GB/s from the third level or memory, and without that they would wait for
//! it half of the time.
//!
//! Few rows wait for the weights in any case, so their sums stay in the tiles for all columns.

use super::amx_tile::{AmxBlock, TILE_BYTES, TILE_ROWS, config, configure, release};
use super::bf16_input::{BLOCK_ROWS, Bf16Blocks, DEPTH, Slabs, block_floats};
use super::expand::{expand, sum_scales};
use super::group::{GemmGroup, each_part};
use crate::cpu::strided::StridedRows;
use crate::cpu::weights::{PANEL, WeightsView};
use crate::runtime::{Disjoint, Pool};
use hwprofiles::DType;
use std::array::from_fn;
use std::ops::Range;

/// Columns of a block where there are many rows: 16 KiB of two panels.
const MANY_ROWS_BLOCK: usize = 256;
/// Columns of a block of expanded weights where there are few rows.
const FEW_ROWS_BLOCK: usize = 1024;
/// Up to this number of rows, the weights' way to the core takes longer than the products.
const FEW_ROWS: usize = 96;
/// Rows whose sums and columns stay in the second-level cache.
pub(super) const CHUNK_ROWS: usize = 512;
/// Pairs of panels whose sums stay there.
const PAIRS: usize = 8;
/// Floats of one tile.
const TILE: usize = TILE_BYTES / 4;
/// Floats of a panel's block of expanded weights.
const PANEL_FLOATS: usize = FEW_ROWS_BLOCK / DEPTH * TILE;
/// Floats of the sums of 32 rows and a pair of panels.
const BLOCK_SUMS: usize = BLOCK_ROWS * 2 * PANEL;

/// Floats that a member's buffer has at least: a block of two expanded panels, and sums for a pair
/// of panels. Where the scratch has room, the buffers hold the sums of several pairs.
pub(super) const MEMBER_FLOATS: usize = 2 * PANEL_FLOATS + CHUNK_ROWS * 2 * PANEL;

/// y = x·Wᵀ with bf16 or integer weights. x and the weights are rounded to bf16; the sums are f32
/// in the order of TDPBF16PS.
///
/// # Safety
/// The CPU has AMX-BF16 and AVX2, and this process may use the tiles.
pub(super) unsafe fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: StridedRows<'_>,
    groups: &[GemmGroup<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let slabs = Slabs { columns: w.columns(), width: slab };
    let (blocks, buffers) = scratch.split_at_mut(block_floats(m, w.columns()));
    let product =
        AmxProduct { y, y_stride, x: Bf16Blocks::new(pool, groups, x, slabs, blocks), w, group: 0..m };
    let most = 2 * PANEL_FLOATS + CHUNK_ROWS * 2 * PANEL * PAIRS;
    let each = (buffers.len() / pool.members() / TILE * TILE).min(most);
    let buffers = Disjoint::new(buffers);
    each_part(pool, groups, (BLOCK_ROWS, CHUNK_ROWS), 2, |member, w, rows, panels| {
        let group = groups[groups.partition_point(|it| it.rows.end <= rows.start)].rows.clone();
        // SAFETY: each member has a buffer of its own.
        let buffer = unsafe { buffers.range(member * each, each) };
        // SAFETY: the caller promises the CPU features; each item has its own part of y.
        unsafe { AmxProduct { w, group, ..product.clone() }.part(rows, panels, buffer) };
    });
}

/// The number of columns of x's slabs where there are `rows` rows: all where these are few.
fn slab(rows: usize) -> usize {
    if rows <= FEW_ROWS { usize::MAX } else { MANY_ROWS_BLOCK }
}

/// The operands of one product.
#[derive(Clone)]
struct AmxProduct<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: Bf16Blocks<'a>,
    w: WeightsView<'a>,
    /// All rows of x that W multiplies.
    group: Range<usize>,
}

/// A block of columns of one or two panels, and what comes after it.
struct Turn {
    panels: Range<usize>,
    columns: Range<usize>,
    /// Which pair it is of those whose sums are kept at a time, and how many they are.
    pair: usize,
    pairs: usize,
}

impl AmxProduct<'_> {
    /// Computes the given rows and panels of y.
    ///
    /// # Safety
    /// The CPU has AMX-BF16, which this process may use; nobody else touches this part of y.
    unsafe fn part(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let (tiles, sums) = buffer.split_at_mut(2 * PANEL_FLOATS);
        let pair_sums = rows.len().div_ceil(BLOCK_ROWS) * BLOCK_SUMS;
        let mut turns = self.turns(panels, sums.len() / pair_sums).peekable();
        let mut shape = TileShape(0);
        while let Some(turn) = turns.next() {
            let sums = &mut sums[turn.pair * pair_sums..][..pair_sums];
            let w = self.tiles(&turn, tiles);
            // SAFETY: the caller's promises.
            unsafe { self.turn(&rows, &turn, turns.peek().unwrap_or(&turn), w, sums, &mut shape) };
            if turn.columns.end == self.w.columns() {
                self.write(&rows, &turn.panels, sums);
            }
        }
        // SAFETY: as above.
        unsafe { release() };
    }

    /// The turns of some rows and panels: with `pairs` pairs of panels at a time, all of them for a
    /// block of columns after the other.
    fn turns(&self, panels: Range<usize>, pairs: usize) -> impl Iterator<Item = Turn> + use<> {
        let bf16 = self.w.dtype() == DType::Bf16;
        let expanded = !bf16 || panels.end * PANEL > self.w.rows();
        let most = if expanded { FEW_ROWS_BLOCK } else { usize::MAX };
        let mut blocks = Vec::new();
        for slab in self.x.slabs().all(self.group.len()) {
            for from in slab.clone().step_by(most) {
                let to = slab.end.min(from.saturating_add(most));
                // Columns beyond the last step of a bf16 panel are not packed as a tile.
                let middle = if bf16 { to - (to - from) % DEPTH } else { to };
                blocks.extend([from..middle, middle..to].into_iter().filter(|block| !block.is_empty()));
            }
        }
        // Few rows read one pair of panels after the other, as they lie in memory.
        let pairs = if self.group.len() <= FEW_ROWS { 1 } else { pairs.clamp(1, PAIRS) };
        panels.clone().step_by(2 * pairs).flat_map(move |first| {
            let group = first..panels.end.min(first + 2 * pairs);
            let pairs = group.len().div_ceil(2);
            blocks.clone().into_iter().flat_map(move |columns| {
                let end = group.end;
                group.clone().step_by(2).enumerate().map(move |(pair, panel)| Turn {
                    panels: panel..end.min(panel + 2),
                    columns: columns.clone(),
                    pair,
                    pairs,
                })
            })
        })
    }

    /// The weights of a turn as tiles, one panel's after the other: where they are, or expanded to
    /// `tiles`.
    fn tiles(&self, turn: &Turn, tiles: &mut [f32]) -> [*const u8; 2] {
        let mut starts = [std::ptr::null(); 2];
        let rooms = tiles.chunks_exact_mut(PANEL_FLOATS);
        for ((panel, room), start) in turn.panels.clone().zip(rooms).zip(&mut starts) {
            let whole = (panel + 1) * PANEL <= self.w.rows() && turn.columns.len().is_multiple_of(DEPTH);
            *start = if whole && self.w.dtype() == DType::Bf16 {
                self.w.panel(panel)[2 * PANEL * turn.columns.start..].as_ptr()
            } else {
                let room = &mut room[..turn.columns.len().div_ceil(DEPTH) * TILE];
                expand(self.w, panel, &turn.columns, room);
                room.as_ptr().cast()
            };
        }
        starts
    }

    /// Adds a turn's products to its sums; from column 0 they begin with zero. Meanwhile it fetches
    /// the weights of the next turn, and a share of the columns that x's rows need next.
    ///
    /// # Safety
    /// As [`AmxProduct::part`]. `w` points to the turn's weights as tiles.
    unsafe fn turn(
        &self,
        rows: &Range<usize>,
        turn: &Turn,
        next: &Turn,
        w: [*const u8; 2],
        sums: &mut [f32],
        shape: &mut TileShape,
    ) {
        let (columns, blocks) = (&turn.columns, rows.len().div_ceil(BLOCK_ROWS));
        let x_ahead = if columns.end < self.w.columns() { columns.end } else { 0 };
        for (block, (from, sums)) in
            rows.clone().step_by(BLOCK_ROWS).zip(sums.chunks_exact_mut(BLOCK_SUMS)).enumerate()
        {
            let height = BLOCK_ROWS.min(rows.end - from);
            let panel = next.panels.start + 2 * block / blocks * (next.panels.len() - 1);
            let weights = self.place(panel, &next.columns, (2 * block % blocks, blocks));
            let share = columns.len() * height * turn.pair / turn.pairs;
            let block = AmxBlock {
                x: [0, TILE_ROWS].map(|row| {
                    self.x.block(&self.group, from, columns.start).as_ptr().wrapping_add(row * DEPTH)
                }),
                x_row: 2 * DEPTH,
                x_step: 2 * DEPTH * height,
                w,
                steps: columns.len().div_ceil(DEPTH),
                add: columns.start > 0,
                y: sums.as_mut_ptr(),
                ahead: [
                    weights,
                    self.x.block(&self.group, from, x_ahead).as_ptr().wrapping_add(share).cast(),
                ],
            };
            // SAFETY: the caller promises the CPU features. x and w have these rows and steps, and
            // the sums are those of 32 rows and two panels.
            unsafe {
                shape.configure(height);
                block.run(height, turn.panels.len());
            }
        }
    }

    /// About where a share of some columns of a panel lies in memory.
    fn place(&self, panel: usize, columns: &Range<usize>, (share, shares): (usize, usize)) -> *const u8 {
        let (bytes, k) = (self.w.bytes(), self.w.columns());
        let panel_bytes = bytes.len() * PANEL / self.w.rows();
        let column = columns.start + columns.len() * share / shares;
        bytes.as_ptr().wrapping_add(panel * panel_bytes + panel_bytes * column / k)
    }

    /// Writes the sums of one or two panels to y.
    fn write(&self, rows: &Range<usize>, panels: &Range<usize>, sums: &[f32]) {
        for (from, sums) in rows.clone().step_by(BLOCK_ROWS).zip(sums.chunks_exact(BLOCK_SUMS)) {
            let height = BLOCK_ROWS.min(rows.end - from);
            let panel_sums = height.div_ceil(TILE_ROWS) * TILE;
            for (panel, sums) in panels.clone().zip(sums.chunks_exact(panel_sums)) {
                let width = PANEL.min(self.w.rows() - panel * PANEL);
                let scales = sum_scales(self.w, panel);
                for (row, sums) in (from..from + height).zip(sums.chunks_exact(PANEL)) {
                    // SAFETY: these values of y belong to this item, which holds one row at a time.
                    let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, width) };
                    let sums: &[f32; PANEL] = sums.try_into().expect("sixteen");
                    match <&mut [f32; PANEL]>::try_from(&mut *y) {
                        Ok(y) => *y = from_fn(|lane| sums[lane]),
                        Err(_) => y.copy_from_slice(&sums[..width]),
                    }
                    if let Some(scales) = &scales {
                        y.iter_mut().zip(scales).for_each(|(y, scale)| *y *= scale);
                    }
                }
            }
        }
    }
}

/// The number of rows that the tiles are configured for.
struct TileShape(usize);

impl TileShape {
    /// # Safety
    /// The CPU has AMX-TILE, and this process may use it.
    unsafe fn configure(&mut self, rows: usize) {
        if self.0 != rows {
            self.0 = rows;
            // SAFETY: the caller's promise.
            unsafe { configure(&config(rows)) };
        }
    }
}

const _: () = assert!(TILE_BYTES == 4 * PANEL * DEPTH / 2, "a tile is 32 columns of a panel");
const _: () = assert!(BLOCK_ROWS == 2 * TILE_ROWS, "a block of rows is two tiles");

#[cfg(test)]
mod tests {
    use super::super::expand::has_vector_expand;
    use super::*;
    use crate::cpu::amx::emulator;
    use crate::cpu::weights::Weights;
    use crate::runtime::{MemoryArena, Path, affinity};
    use half::bf16;
    use hwprofiles::units::Bytes;

    fn noise(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i + seed) * 2_654_435_761 % 65_521) as f32 / 32_768.0 - 1.0).collect()
    }

    /// One output in the order of TDPBF16PS: 32 columns at a time, even and odd columns in separate
    /// sums. Products of bf16 are exact in f32, and none here is subnormal.
    fn reference(x: &[f32], w: &[f32]) -> f32 {
        let round = |value: f32| bf16::from_f32(value).to_f32();
        let mut sum = 0.0f32;
        for (x, w) in x.chunks(DEPTH).zip(w.chunks(DEPTH)) {
            let mut halves = [0.0f32; 2];
            for (i, (x, w)) in x.iter().zip(w).enumerate() {
                halves[i % 2] += round(*x) * round(*w);
            }
            sum += halves[0] + halves[1];
        }
        sum
    }

    fn check(dtype: DType, members: usize, m: usize, n: usize, k: usize) {
        if dtype == DType::Fp8Block && !n.is_multiple_of(PANEL) {
            return; // Its panels are whole.
        }
        let cores = affinity::available_cores();
        let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
        let pool = Pool::new(&cores).expect("our cores");
        let (x_stride, y_stride) = (k + 3, n + 5);
        let (x, w) = (noise(m * x_stride, 1), noise(n * k, 2));
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
        let weights = Weights::from_f32(&memory, dtype, n, k, &w).expect("fits");
        let mut lines = vec![0.0; n * k];
        lines.chunks_exact_mut(k).enumerate().for_each(|(row, line)| weights.view().row(row, line));
        let mut scratch = vec![f32::NAN; super::super::scratch_bytes(members, m, k) / 4];
        let mut y = vec![7.0; m * y_stride];
        let shared = Disjoint::new(&mut y);
        // Two groups with the same matrix are one product, row by row.
        let group = |rows: Range<usize>| GemmGroup { rows, w: weights.view() };
        let groups: Vec<_> =
            [0..m / 3, m / 3..m].into_iter().filter(|it| !it.is_empty()).map(group).collect();
        // SAFETY: the caller looked for AVX2. AMX works, in the processor or by the emulator.
        unsafe { gemm(&pool, &shared, y_stride, StridedRows::new(&x, x_stride), &groups, &mut scratch) };
        for (i, row) in y.chunks(y_stride).enumerate() {
            for (j, &got) in row.iter().enumerate() {
                let (x, line) = (&x[i * x_stride..][..k], lines.get(j * k..(j + 1) * k));
                let scales = line.and_then(|_| sum_scales(weights.view(), j / PANEL));
                let wanted = match (line, scales.map(|scales| scales[j % PANEL])) {
                    (None, _) => 7.0,
                    (Some(line), None) => reference(x, line),
                    // Rounded to bf16, a quotient is the number that the scale was multiplied by.
                    (Some(line), Some(scale)) => {
                        scale * reference(x, &line.iter().map(|value| value / scale).collect::<Vec<_>>())
                    }
                };
                assert_eq!(
                    got.to_bits(),
                    wanted.to_bits(),
                    "{dtype} {m}×{n}×{k} at ({i}, {j}): {got}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn every_output_is_the_bits_of_the_definition_in_the_order_of_the_instruction() {
        if !Path::Avx2.is_supported() {
            return println!("absent: this CPU has no AVX2, by which x is rounded");
        }
        println!("AMX: {}", emulator::provide());
        println!(
            "expansion by AVX-512 BF16: {}",
            if has_vector_expand() { "real" } else { "absent, plain instead" }
        );
        for dtype in [DType::Bf16, DType::Fp8, DType::Fp8Block, DType::Int8, DType::Int4] {
            for m in [1, 2, 15, 16, 17, 31, 32, 33, 47, 65] {
                for (n, k) in [(1, 1), (15, 31), (16, 32), (17, 33), (32, 64), (33, 30), (50, 95), (48, 193)]
                {
                    check(dtype, 1, m, n, k);
                }
            }
            for (m, n, k) in
                [(3, 20, 1023), (40, 33, 1024), (5, 47, 1025), (33, 18, 2083), (130, 560, 291), (97, 40, 512)]
            {
                check(dtype, 1, m, n, k);
                check(dtype, 2, m, n, k);
            }
        }
    }
}
