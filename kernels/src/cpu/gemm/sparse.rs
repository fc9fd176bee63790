//! Products with sparse weights, which are expanded on the fly to the form of dense bf16 weights.
//!
//! Products of few rows wait for memory, so expanded weights never leave the first-level cache. A
//! block of a panel is expanded into a member's buffer, all rows of the item are multiplied by it,
//! and the next block overwrites it.

use super::amx_tile::{AmxBlock, TILE_ROWS as AMX_ROWS, config, configure, release};
use super::bf16_input::{Bf16Rows, DEPTH};
use super::blocking::{BUFFER, CHUNK_ROWS, even_tiles};
use super::scratch::scratch_bytes;
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use crate::cpu::tiles::avx2::{self, Avx2Tile, Bf16Panel, Fetch};
use crate::cpu::tiles::avx512::{self, PairedBf16Step, TileStep, WidenedBf16Step};
use crate::cpu::tiles::scales::TileScales;
use crate::cpu::weights::{PANEL, SparseWeights};
use crate::runtime::{Disjoint, Path, Pool, Scratch};
use std::ops::Range;

/// Columns of a block: 16 KiB of a panel.
const BLOCK: usize = 2 * BUFFER;
/// Panels of one item of work.
const PANELS: usize = 4;

/// As [`crate::gemm()`], with sparse bf16 weights. The paths that round x to bf16 do so here too.
/// Bytes: [`SparseWeights::bytes`] once for each 192 rows.
///
/// # Panics
/// As [`crate::gemm()`].
pub fn sparse_gemm(
    pool: &Pool,
    m: usize,
    y: StridedRowsMut<'_>,
    x: StridedRows<'_>,
    w: &SparseWeights,
    scratch: &mut Scratch,
) {
    let (n, k) = (w.rows(), w.columns());
    if m == 0 || n == 0 {
        return;
    }
    x.assert_holds(m, k, "x");
    y.assert_holds(m, n, "y");
    let needed = scratch_bytes(pool.members(), m, k);
    assert!(scratch.bytes() >= needed, "scratch has {} bytes, {needed} needed", scratch.bytes());
    // SAFETY: this CPU can run the pool's path.
    unsafe { multiply(pool, pool.path(), m, y, x, w, scratch.floats()) };
}

/// As [`sparse_gemm`], with the instructions of `path`.
///
/// # Safety
/// The CPU has the path's instructions.
unsafe fn multiply(
    pool: &Pool,
    path: Path,
    m: usize,
    y: StridedRowsMut<'_>,
    x: StridedRows<'_>,
    w: &SparseWeights,
    scratch: &mut [f32],
) {
    let k = w.columns();
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let operand = match path {
        Path::Reference | Path::Avx2 | Path::Avx512 => SparseInput::F32(x),
        Path::Avx512Bf16 | Path::Amx => SparseInput::Bf16(Bf16Rows::new(pool, m, k, x, rest)),
    };
    let y_stride = y.stride;
    let y = Disjoint::new(y.values);
    let product = SparseProduct { path, y: &y, y_stride, x: operand, w };
    let panels = w.rows().div_ceil(PANEL);
    let chunks = m.div_ceil(CHUNK_ROWS);
    let buffers = Disjoint::new(buffers);
    pool.each(chunks * panels.div_ceil(PANELS), |member, item| {
        let rows = item % chunks * CHUNK_ROWS..m.min((item % chunks + 1) * CHUNK_ROWS);
        let first = item / chunks * PANELS;
        // SAFETY: each member has a buffer of its own.
        let buffer = unsafe { buffers.range(member * BUFFER * PANEL, BUFFER * PANEL) };
        for panel in first..panels.min(first + PANELS) {
            // SAFETY: the caller promises the CPU features; each item has its own part of y.
            unsafe { product.panel(&rows, panel, buffer) };
        }
    });
}

/// x in the form that a path multiplies.
#[derive(Clone, Copy)]
enum SparseInput<'a> {
    /// f32 values.
    F32(StridedRows<'a>),
    /// Rounded to bf16.
    Bf16(Bf16Rows<'a>),
}

/// The operands of one call.
struct SparseProduct<'a> {
    path: Path,
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: SparseInput<'a>,
    w: &'a SparseWeights,
}

impl SparseProduct<'_> {
    /// Computes some rows of one panel of y.
    ///
    /// # Safety
    /// The CPU has the path's instructions; nobody else touches this part of y.
    unsafe fn panel(&self, rows: &Range<usize>, panel: usize, buffer: &mut [f32]) {
        let k = self.w.columns();
        let width = PANEL.min(self.w.rows() - panel * PANEL);
        let mut values = self.w.values(panel);
        // The number of rows that the AMX tiles are configured for.
        let mut shape = 0;
        let most = match self.path {
            Path::Amx => 2 * AMX_ROWS,
            Path::Avx512 | Path::Avx512Bf16 => avx512::TILE_ROWS,
            Path::Reference | Path::Avx2 => avx2::TILE_ROWS,
        };
        // Without columns the product is zero, which one empty block writes.
        for from in (0..k.max(1)).step_by(BLOCK) {
            let columns = from..k.min(from + BLOCK);
            // SAFETY: the blocks follow each other from the panel's first value on.
            values = unsafe { self.w.expand(self.path, panel, &columns, values, buffer) };
            for rows in even_tiles(rows, most) {
                // The sums are sixteen wide, because y must keep the values beyond the last row of
                // W.
                let mut sums = [0.0; 2 * AMX_ROWS * PANEL];
                let y = |row: usize| {
                    // SAFETY: these values of y belong to this item, which holds one row at a time.
                    unsafe { self.y.range(row * self.y_stride + panel * PANEL, width) }
                };
                if from > 0 {
                    let each = rows.clone().zip(sums.chunks_exact_mut(PANEL));
                    each.for_each(|(row, sums)| sums[..width].copy_from_slice(y(row)));
                }
                if self.path == Path::Amx && shape != rows.len() {
                    shape = rows.len();
                    // SAFETY: a CPU that runs this path has AMX, which this process may use.
                    unsafe { configure(&config(shape)) };
                }
                // SAFETY: the caller's promises; the buffer has these columns, padded with zeros to
                // whole steps.
                unsafe { self.tile(&rows, &columns, buffer, &mut sums) };
                let each = rows.zip(sums.chunks_exact(PANEL));
                each.for_each(|(row, sums)| y(row).copy_from_slice(&sums[..width]));
            }
        }
        if shape > 0 {
            // SAFETY: as above.
            unsafe { release() };
        }
    }

    /// Adds the contribution of `columns`, whose weights are `tiles`, to `sums`, which has sixteen
    /// values for each row.
    ///
    /// # Safety
    /// As [`SparseProduct::panel`]. The AMX tiles are configured for these rows. `tiles` has these
    /// columns, padded with zeros to whole steps of [`DEPTH`].
    unsafe fn tile(&self, rows: &Range<usize>, columns: &Range<usize>, tiles: &[f32], sums: &mut [f32]) {
        let (w, y) = (tiles.as_ptr().cast::<u8>(), sums.as_mut_ptr());
        let m = rows.len();
        // On every path, x has these rows and columns, and `sums` these rows of sixteen. The rest
        // is the caller's promise.
        match (self.path, self.x) {
            // SAFETY: as above.
            (Path::Amx, SparseInput::Bf16(x)) => unsafe {
                let (x, x_row) = (x.values[rows.start * x.stride + columns.start..].as_ptr(), 2 * x.stride);
                let x = [x, x.wrapping_byte_add(AMX_ROWS * x_row)];
                let (x_step, steps) = (2 * DEPTH, columns.len().div_ceil(DEPTH));
                let block = AmxBlock { x, x_row, x_step, w: [w; 2], steps, add: true, y, ahead: [w; 2] };
                block.run(m, 1);
            },
            // SAFETY: as above.
            (_, SparseInput::Bf16(x)) => unsafe {
                let pairs = bytemuck::cast_slice(&x.values[rows.start * x.stride + columns.start..]);
                wide::<PairedBf16Step>(m, columns.len().div_ceil(2), pairs, x.stride / 2, w, y);
            },
            // SAFETY: as above.
            (Path::Avx512, SparseInput::F32(x)) => unsafe {
                let (x, stride) = (&x.values[rows.start * x.stride + columns.start..], x.stride);
                let pairs = columns.len() / 2;
                wide::<WidenedBf16Step>(m, pairs, x, stride, w, y);
                // x has no value for the last column's partner, so that column is added separately.
                self.odd_column(rows, columns, tiles, sums);
            },
            // SAFETY: as above.
            (Path::Avx2, SparseInput::F32(x)) => unsafe {
                let (x, stride) = (&x.values[rows.start * x.stride + columns.start..], x.stride);
                let panel = Bf16Panel { start: w, fetch: Fetch::Nothing };
                let (x, y_stride, scales) = (x.as_ptr(), PANEL, TileScales::NONE);
                Avx2Tile { x, x_stride: stride, w: panel, scales, y, y_stride, add: true }
                    .run(m, columns.len() / 2 * 2);
                self.odd_column(rows, columns, tiles, sums);
            },
            (_, SparseInput::F32(x)) => {
                for (row, sums) in rows.clone().zip(sums.chunks_exact_mut(PANEL)) {
                    for (at, x) in x.values[row * x.stride..][columns.clone()].iter().enumerate() {
                        let pairs = &tiles[at / 2 * PANEL..][..PANEL];
                        sums.iter_mut().zip(pairs).for_each(|(sum, w)| *sum += x * bf16_of_pair(*w, at % 2));
                    }
                }
            }
        }
    }

    /// Adds the contribution of a last column without a partner.
    fn odd_column(&self, rows: &Range<usize>, columns: &Range<usize>, tiles: &[f32], sums: &mut [f32]) {
        let (SparseInput::F32(x), 1) = (self.x, columns.len() % 2) else { return };
        let weights = &tiles[columns.len() / 2 * PANEL..][..PANEL];
        for (row, sums) in rows.clone().zip(sums.chunks_exact_mut(PANEL)) {
            let x = x.values[row * x.stride + columns.end - 1];
            sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += x * bf16_of_pair(*w, 0));
        }
    }
}

/// One column of a pair.
fn bf16_of_pair(pair: f32, which: usize) -> f32 {
    f32::from_bits(pair.to_bits() >> (16 * which) << 16)
}

/// # Safety
/// The CPU has the step's instructions. x has m rows of these steps, w has the steps, and y has m
/// rows of sixteen values, which belong to the caller.
unsafe fn wide<S: TileStep>(m: usize, steps: usize, x: &[f32], x_stride: usize, w: *const u8, y: *mut f32) {
    let tile = avx512::Avx512Tile {
        x: x.as_ptr(),
        x_stride,
        w,
        panel_bytes: 0,
        steps,
        scales: TileScales::NONE,
        add: true,
        y,
        y_stride: PANEL,
        ahead: std::ptr::null(),
    };
    // SAFETY: the caller's promises.
    unsafe { tile.run::<S>(m, 1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::amx::emulator;
    use crate::cpu::weights::has_vector_expand;
    use crate::runtime::{MemoryArena, affinity};
    use half::bf16;
    use hwprofiles::{DType, units::Bytes};

    fn noise(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i + seed) * 2_654_435_761 % 65_521) as f32 / 32_768.0 - 1.0).collect()
    }

    fn rounded(value: f32) -> f32 {
        bf16::from_f32(value).to_f32()
    }

    /// The sum in the order of TDPBF16PS: 32 columns at a time, even and odd columns separately.
    fn in_tiles(x: &[f32], w: &[f32]) -> f32 {
        let mut sum = 0.0f32;
        for (x, w) in x.chunks(DEPTH).zip(w.chunks(DEPTH)) {
            let mut halves = [0.0f32; 2];
            x.iter().zip(w).enumerate().for_each(|(i, (x, w))| halves[i % 2] += rounded(*x) * w);
            sum += halves[0] + halves[1];
        }
        sum
    }

    /// Expects the bits of the reference and of the tiles; for vectors it allows the rounding of
    /// f32 and of `Path::rounding`.
    fn expect(path: Path, got: f32, x: &[f32], w: &[f32], place: &str) {
        let exactly = match path {
            Path::Reference => x.iter().zip(w).fold(0.0, |sum, (x, w)| sum + x * w),
            Path::Amx => in_tiles(x, w),
            _ => {
                let terms = || x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let bound = (1e-6 + f64::from(path.rounding(DType::Bf16))) * size;
                return assert!((f64::from(got) - sum).abs() <= bound, "{place}: {got}, exactly {sum}");
            }
        };
        assert_eq!(got, exactly, "{place}");
    }

    fn check(path: Path, members: usize, sparsity: usize, (m, n, k): (usize, usize, usize)) {
        let cores = affinity::available_cores();
        let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
        let pool = Pool::new(&cores).expect("our cores");
        let (x_stride, y_stride) = (k + 3, n + 5);
        let x = noise(m * x_stride, 1);
        let mut values: Vec<_> = noise(n * k, 2).into_iter().map(rounded).collect();
        values.iter_mut().enumerate().filter(|(i, _)| i * 7919 % 10 < sparsity).for_each(|(_, w)| *w = 0.0);
        let weights = SparseWeights::from_f32(&MemoryArena::new("test", Bytes::new(1 << 30)), n, k, &values)
            .expect("fits");
        let mut scratch = vec![f32::NAN; scratch_bytes(members, m, k) / 4];
        let mut y = vec![7.0; m * y_stride];
        let (y_rows, x_rows) = (StridedRowsMut::new(&mut y, y_stride), StridedRows::new(&x, x_stride));
        // SAFETY: the caller looked for the path's instructions, or emulates them.
        unsafe { multiply(&pool, path, m, y_rows, x_rows, &weights, &mut scratch) };
        for (i, row) in y.chunks(y_stride).enumerate() {
            for (j, &got) in row.iter().enumerate() {
                let place = format!("{path}, {sparsity}0 % zeros, {m}×{n}×{k} at ({i}, {j})");
                match j < n {
                    true => expect(path, got, &x[i * x_stride..][..k], &values[j * k..][..k], &place),
                    false => assert_eq!(got, 7.0, "{place}"),
                }
            }
        }
    }

    #[test]
    fn every_path_agrees_with_the_definition_at_every_sparsity() {
        println!(
            "expansion by VPEXPANDW: {}",
            if has_vector_expand() { "real" } else { "absent, plain instead" }
        );
        for path in Path::ALL {
            let how = match path {
                Path::Amx if Path::Avx2.is_supported() => emulator::provide(),
                _ if path.is_supported() => "real",
                _ => "absent",
            };
            println!("{path}: {how}");
            if how == "absent" {
                continue;
            }
            for sparsity in [0, 5, 9, 10] {
                for m in [1, 2, 7, 13, 17, 33] {
                    for (n, k) in [(1, 1), (16, 32), (17, 33), (33, 64), (50, 95), (7, 0)] {
                        check(path, 1, sparsity, (m, n, k));
                    }
                }
                for shape in
                    [(3, 20, BLOCK - 1), (40, 33, BLOCK), (5, 150, BLOCK + 1), (200, 18, 2 * BLOCK + 35)]
                {
                    check(path, 1, sparsity, shape);
                    check(path, 2, sparsity, shape);
                }
            }
        }
    }
}
