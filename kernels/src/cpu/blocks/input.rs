//! x rounded to 16-bit integers, as the products with blocks read it.
//!
//! Each group of 32 columns has a scale, and its error is at most 2⁻¹⁶ of the group's largest
//! value. Eight bits would halve the multiplications. But decoding waits for memory, not for them,
//! and the tiles of AMX serve many rows.

use super::formats::{self, BlockFormat};
use crate::cpu::strided::StridedRows;
use crate::runtime::{Disjoint, Path, Pool};
use hwprofiles::DType;

/// Largest magnitude of an integer: both of its bytes, as 256·high + low, are signed.
const LIMIT: f32 = 32639.0;
/// 3·2²²: a float of this magnitude has no fraction bits, so adding it rounds to an integer.
const ROUNDING: f32 = 12_582_912.0;
/// All bits of a float but its sign.
const SIGNLESS: u32 = 0x7fff_ffff;
/// Columns of a group.
const COLUMNS: usize = 32;
/// Words of a group: sixteen of integers; the scale; minus the format's offset times the sum of the
/// first and of the last sixteen integers, or of all in the first; the scale times the sum of all.
pub(super) const GROUP_WORDS: usize = 20;
/// The number of values from which on the whole team rounds x.
const SHARED: usize = 1 << 14;

/// The instructions that multiply; their results are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockInstructions {
    Avx2,
    /// AVX-512 F, BW, VL and VNNI.
    Vnni,
}

impl BlockInstructions {
    /// The instructions of a path.
    pub(crate) fn for_path(path: Path) -> Self {
        match path {
            Path::Avx512 | Path::Avx512Bf16 | Path::Amx if is_x86_feature_detected!("avx512vnni") => {
                Self::Vnni
            }
            _ => Self::Avx2,
        }
    }
}

/// Rows of x for a product with blocks.
#[derive(Clone, Copy)]
pub(crate) struct BlockRows<'a> {
    words: &'a [f32],
    groups: usize,
}

/// Floats of scratch for a row of k columns, which are whole groups.
pub(crate) fn row_floats(k: usize) -> usize {
    k / COLUMNS * GROUP_WORDS
}

impl<'a> BlockRows<'a> {
    /// Rounds m rows of k columns for weights in `dtype`.
    pub(crate) fn new(
        pool: &Pool,
        (m, k): (usize, usize),
        dtype: DType,
        instructions: BlockInstructions,
        x: StridedRows<'_>,
        scratch: &'a mut [f32],
    ) -> Self {
        let (groups, halves, offset) = (k / COLUMNS, has_halves(dtype), offset(dtype));
        let words = &mut scratch[..m * row_floats(k)];
        let shared = Disjoint::new(words);
        let one = |_, row: usize| {
            // SAFETY: each row is one item.
            let out = unsafe { shared.range(row * row_floats(k), row_floats(k)) };
            let x = &x.values[row * x.stride..][..k];
            let groups = x.chunks_exact(COLUMNS).zip(out.chunks_exact_mut(GROUP_WORDS));
            // SAFETY: (both) only paths that include AVX2 round x.
            groups.for_each(|(x, out)| unsafe { round(x, instructions, offset, halves, out) });
        };
        if m * k < SHARED {
            (0..m).for_each(|row| one(0, row));
        } else {
            pool.each(m, one);
        }
        Self { words, groups }
    }

    /// The groups of a row.
    pub(super) fn row(&self, row: usize) -> *const i32 {
        self.words[row * self.groups * GROUP_WORDS..].as_ptr().cast()
    }
}

/// The offset of a format's numbers.
fn offset(dtype: DType) -> i32 {
    match dtype {
        DType::Q8_0 => formats::Q8_0::OFFSET,
        DType::Q4_0 => formats::Q4_0::OFFSET,
        DType::Iq4Nl => formats::Iq4Nl::OFFSET,
        DType::Iq4Xs => formats::Iq4Xs::OFFSET,
        DType::Mxfp4 => formats::Mxfp4::OFFSET,
        DType::Nvfp4 => formats::Nvfp4::OFFSET,
        DType::Q6K => formats::Q6K::OFFSET,
        _ => 0,
    }
}

/// Whether sixteen columns have a scale.
fn has_halves(dtype: DType) -> bool {
    matches!(dtype, DType::Q6K | DType::Nvfp4)
}

/// Rounds a group.
///
/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn round(x: &[f32], instructions: BlockInstructions, offset: i32, halves: bool, out: &mut [f32]) {
    // Magnitudes compare in the same order as integers. NaN is above infinity.
    let largest = x.iter().fold(0, |largest, x| largest.max(x.to_bits() & SIGNLESS));
    let finite = largest < f32::INFINITY.to_bits();
    let largest = f32::from_bits(largest);
    let inverse = if largest > 0.0 { LIMIT / largest } else { 0.0 };
    let mut integers = [0i16; COLUMNS];
    for (integer, x) in integers.iter_mut().zip(x) {
        // The last bit of the sum is worth one, so its lower half is the integer.
        *integer = (x * inverse + ROUNDING).to_bits() as i16;
    }
    let sum = |part: &[i16]| part.iter().map(|&integer| i32::from(integer)).sum::<i32>();
    let (first, last) = (sum(&integers[..16]), sum(&integers[16..]));
    // An infinity or NaN in x must become NaN, not a large number.
    let scale = if finite { largest / LIMIT } else { f32::NAN };
    let (words, rest) = out.split_at_mut(16);
    let words: &mut [i16] = bytemuck::cast_slice_mut(words);
    match instructions {
        BlockInstructions::Vnni => {
            let bytes: &mut [i8] = bytemuck::cast_slice_mut(words);
            let (low, high) = bytes.split_at_mut(COLUMNS);
            for ((low, high), integer) in low.iter_mut().zip(high).zip(integers) {
                *low = integer as i8;
                *high = ((integer - i16::from(*low)) >> 8) as i8;
            }
        }
        BlockInstructions::Avx2 => {
            for (words, four) in words.chunks_exact_mut(4).zip(integers.chunks_exact(4)) {
                words.copy_from_slice(&[four[0], four[2], four[1], four[3]]);
            }
        }
    }
    rest[0] = scale;
    let starts = if halves { [first, last] } else { [first + last, 0] };
    rest[1] = f32::from_bits((-offset * starts[0]) as u32);
    rest[2] = f32::from_bits((-offset * starts[1]) as u32);
    rest[3] = scale * (first + last) as f32;
}
