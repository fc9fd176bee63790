//! A few rows of x times one panel of blocks.

use super::formats::{
    BlockFormat, BlockGroup, BlockPlace, Iq4Nl, Iq4Xs, Mxfp4, Nvfp4, Q4_0, Q4K, Q5K, Q6K, Q8_0, row_scales,
};
use super::input::{BlockInstructions, BlockRows, GROUP_WORDS};
use super::lanes::{Avx2, Avx512, Lanes};
use crate::cpu::tiles::avx2::Fetch;
use crate::cpu::weights::PANEL;
use hwprofiles::DType;

/// The most rows of a tile. A group is unpacked once for all of them.
pub(crate) const TILE_ROWS: usize = 4;
/// Groups of the largest block.
const MOST_GROUPS: usize = 8;

/// One tile: y = x·w.
pub(crate) struct BlockTile<'a> {
    pub(crate) x: BlockRows<'a>,
    /// The first row of x, and how many there are, at most [`TILE_ROWS`].
    pub(crate) row: usize,
    pub(crate) rows: usize,
    /// The bytes of sixteen rows of weights.
    pub(crate) panel: &'a [u8],
    /// The first row's sixteen values of y, and the distance of y's rows.
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
    /// What to prefetch meanwhile.
    pub(crate) fetch: Fetch,
}

impl BlockTile<'_> {
    /// Computes the tile.
    ///
    /// # Safety
    /// The CPU has the instructions. x has these rows; y has them too, and nobody else touches
    /// them. The panel is in `dtype`, which is a format of blocks.
    pub(crate) unsafe fn run(&self, instructions: BlockInstructions, dtype: DType) {
        // SAFETY: the caller's promises.
        unsafe {
            match dtype {
                DType::Q8_0 => self.by::<Q8_0>(instructions),
                DType::Q4_0 => self.by::<Q4_0>(instructions),
                DType::Iq4Nl => self.by::<Iq4Nl>(instructions),
                DType::Iq4Xs => self.by::<Iq4Xs>(instructions),
                DType::Mxfp4 => self.by::<Mxfp4>(instructions),
                DType::Nvfp4 => self.by::<Nvfp4>(instructions),
                DType::Q4K => self.by::<Q4K>(instructions),
                DType::Q5K => self.by::<Q5K>(instructions),
                DType::Q6K => self.by::<Q6K>(instructions),
                _ => unreachable!("{dtype} is no format of blocks"),
            }
        }
    }

    /// # Safety
    /// As [`BlockTile::run`].
    unsafe fn by<F: BlockFormat>(&self, instructions: BlockInstructions) {
        // SAFETY: (all) the caller's promises.
        unsafe {
            match (instructions, self.rows) {
                (_, 0) => {}
                (BlockInstructions::Avx2, 1) => self.avx2::<F, 1>(),
                (BlockInstructions::Avx2, 2) => self.avx2::<F, 2>(),
                (BlockInstructions::Avx2, 3) => self.avx2::<F, 3>(),
                (BlockInstructions::Avx2, _) => self.avx2::<F, 4>(),
                (BlockInstructions::Vnni, 1) => self.vnni::<F, 1>(),
                (BlockInstructions::Vnni, 2) => self.vnni::<F, 2>(),
                (BlockInstructions::Vnni, 3) => self.vnni::<F, 3>(),
                (BlockInstructions::Vnni, _) => self.vnni::<F, 4>(),
            }
        }
    }

    /// # Safety
    /// As [`BlockTile::run`], with AVX2, FMA and F16C.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn avx2<F: BlockFormat, const M: usize>(&self) {
        // SAFETY: the caller's promises.
        unsafe {
            self.lanes::<F, Avx2, M>(0, self.fetch);
            self.lanes::<F, Avx2, M>(Avx2::COUNT, Fetch::Nothing);
        }
    }

    /// # Safety
    /// As [`BlockTile::run`], with AVX-512 F, BW, VL and VNNI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn vnni<F: BlockFormat, const M: usize>(&self) {
        // SAFETY: the caller's promises.
        unsafe { self.lanes::<F, Avx512, M>(0, self.fetch) };
    }

    /// Computes the outputs of the panel's rows from `lane` on.
    ///
    /// # Safety
    /// As [`BlockTile::run`].
    #[inline(always)]
    unsafe fn lanes<F: BlockFormat, L: Lanes, const M: usize>(&self, lane: usize, fetch: Fetch) {
        let mut x: [*const i32; M] = std::array::from_fn(|row| self.x.row(self.row + row));
        // SAFETY: the CPU has the instructions of `L`.
        let mut sums = [unsafe { L::zero() }; M];
        for block in self.panel[PANEL * F::ROW_SCALE..].chunks_exact(PANEL * F::BYTES) {
            let place = BlockPlace { block: block.as_ptr(), lane };
            // SAFETY: (all) the caller's promises; a whole block of the panel and of x is there.
            unsafe {
                let header = F::header::<L>(place);
                // Written out and not a loop, so that each group's shifts are constants.
                macro_rules! groups {
                    ($($index:literal)*) => { $(
                        if 32 * $index < F::COLUMNS {
                            // A share of the lines, so that they do not all wait at once.
                            let share = PANEL * F::BYTES / (F::COLUMNS / 32);
                            let lines = ($index * share).next_multiple_of(64)..($index + 1) * share;
                            lines.step_by(64).for_each(|line| fetch.line(block.as_ptr(), line));
                            let group = F::group::<L>(place, &header, $index);
                            for row in 0..M {
                                let x = x[row].add($index * GROUP_WORDS);
                                sums[row] = add_group::<F, L>(&group, x, sums[row]);
                            }
                        }
                    )* };
                }
                groups!(0 1 2 3 4 5 6 7);
                x.iter_mut().for_each(|x| *x = x.add(F::COLUMNS / 32 * GROUP_WORDS));
            }
        }
        for (row, mut sum) in sums.into_iter().enumerate() {
            // SAFETY: the panel has a scale for each row where the format has them; y has this row
            // of sixteen values, which belongs to this tile.
            unsafe {
                if F::ROW_SCALE > 0 {
                    sum = L::mul(sum, row_scales::<L>(self.panel, lane));
                }
                L::store(self.y.add(row * self.y_stride + lane), sum);
            }
        }
    }
}

/// sum + the products of a group with a row's group at `x`.
#[inline(always)]
unsafe fn add_group<F: BlockFormat, L: Lanes>(
    group: &BlockGroup<L>,
    x: *const i32,
    mut sum: L::Float,
) -> L::Float {
    // SAFETY: (all) the caller's promises of `BlockTile::run`.
    unsafe {
        let scale = L::splat_float(*x.add(16).cast());
        if F::HALVES {
            let first = L::to_float(L::products::<0, 4>(&group.quads, x, *x.add(17)));
            let last = L::to_float(L::products::<4, 8>(&group.quads, x, *x.add(18)));
            sum = L::mul_add(first, L::mul(scale, group.scales[0]), sum);
            sum = L::mul_add(last, L::mul(scale, group.scales[1]), sum);
        } else {
            let all = L::to_float(L::products::<0, 8>(&group.quads, x, *x.add(17)));
            sum = L::mul_add(all, L::mul(scale, group.scales[0]), sum);
        }
        if F::MINIMUM {
            sum = L::mul_sub(group.minimum, L::splat_float(*x.add(19).cast()), sum);
        }
        sum
    }
}

const _: () = assert!(MOST_GROUPS * 32 == 256, "the largest block has as many groups as are written out");
