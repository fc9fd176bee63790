//! Groups of 32 columns of a panel's rows, unpacked to bytes, format by format.
//!
//! Four columns of a row are the four bytes of a lane. The bytes are unsigned: a format whose
//! numbers are signed has [`BlockFormat::OFFSET`] added to them.

use super::decode::{DOUBLED_FLOATS, UNEQUAL_STEPS};
use super::lanes::Lanes;
use crate::cpu::weights::PANEL;

/// Rows `lane..` of one block of a panel.
#[derive(Clone, Copy)]
pub(super) struct BlockPlace {
    /// The panel's block.
    pub(super) block: *const u8,
    /// The first row.
    pub(super) lane: usize,
}

impl BlockPlace {
    /// The rows' units of `size` bytes that lie at `at` in a block.
    fn unit(self, at: usize, size: usize) -> *const u8 {
        self.block.wrapping_add(PANEL * at + self.lane * size)
    }

    /// Word `index` after the first `at` bytes of a block.
    #[inline(always)]
    unsafe fn word<L: Lanes>(self, at: usize, index: usize) -> L::Int {
        // SAFETY: the caller's block has this word.
        unsafe { L::words(self.unit(at + 4 * index, 4)) }
    }
}

/// What the groups of a block share.
#[derive(Clone, Copy)]
pub(super) struct BlockHeader<L: Lanes> {
    ints: [L::Int; 4],
    floats: [L::Float; 2],
}

/// A group of 32 columns of each row.
#[derive(Clone, Copy)]
pub(super) struct BlockGroup<L: Lanes> {
    /// Numbers of four columns each.
    pub(super) quads: [L::Int; 8],
    /// The scales of the first and of the last sixteen columns, or the first one of all.
    pub(super) scales: [L::Float; 2],
    /// What is subtracted from each product of number and scale.
    pub(super) minimum: L::Float,
}

/// A format of blocks: value = scale·(byte − OFFSET) − minimum, times the row's scale where it has
/// one.
///
/// # Safety
/// Both functions need the CPU to have the instructions of `L`, and a whole block at the place.
pub(super) trait BlockFormat {
    /// Columns and bytes of a row's block.
    const COLUMNS: usize;
    const BYTES: usize;
    /// What is added to numbers.
    const OFFSET: i32 = 0;
    /// Whether sixteen columns have a scale of their own.
    const HALVES: bool = false;
    /// Whether there is a minimum.
    const MINIMUM: bool = false;
    /// Bytes of a row's scale in front of a panel's blocks.
    const ROW_SCALE: usize = 0;

    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L>;
    /// Group `index` of the block.
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, index: usize) -> BlockGroup<L>;
}

/// The scales of a panel's rows from `lane` on.
#[inline(always)]
pub(super) unsafe fn row_scales<L: Lanes>(panel: &[u8], lane: usize) -> L::Float {
    // SAFETY: the caller's promise; a panel with scales begins with one of four bytes for each row.
    unsafe { L::from_bits(L::words(panel[4 * lane..].as_ptr())) }
}

/// A header of one scale in f16 at `at`.
#[inline(always)]
unsafe fn one_scale<L: Lanes>(place: BlockPlace, at: usize) -> BlockHeader<L> {
    // SAFETY: the caller's promise.
    unsafe { BlockHeader { ints: [L::splat(0); 4], floats: [L::halves(place.unit(at, 2)), L::zero()] } }
}

/// A group with one scale and no minimum.
#[inline(always)]
unsafe fn scaled<L: Lanes>(quads: [L::Int; 8], scale: L::Float) -> BlockGroup<L> {
    // SAFETY: the caller's promise.
    BlockGroup { quads, scales: [scale; 2], minimum: unsafe { L::zero() } }
}

/// The 4-bit numbers of 32 columns. Those of the first sixteen are the low halves of four words,
/// and those of the last sixteen the high halves.
#[inline(always)]
unsafe fn nibbles<L: Lanes>(place: BlockPlace, at: usize) -> [L::Int; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = L::splat(0x0f0f_0f0f);
        let mut quads = [L::splat(0); 8];
        for index in 0..4 {
            let word = place.word::<L>(at, index);
            quads[index] = L::and(word, mask);
            quads[4 + index] = L::and(L::right(word, 4), mask);
        }
        quads
    }
}

/// The 4-bit numbers of 32 columns in the low (`part` 0) or high (1) halves of eight words.
#[inline(always)]
unsafe fn half_bytes<L: Lanes>(place: BlockPlace, at: usize, part: usize) -> [L::Int; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = L::splat(0x0f0f_0f0f);
        let mut quads = [L::splat(0); 8];
        for (index, quad) in quads.iter_mut().enumerate() {
            *quad = L::and(L::right(place.word::<L>(at, index), 4 * part as u32), mask);
        }
        quads
    }
}

/// The table's entries, plus `offset`, for 4-bit numbers.
#[inline(always)]
unsafe fn look_up<L: Lanes>(table: &[i8; 16], offset: i32, mut quads: [L::Int; 8]) -> [L::Int; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let table = L::table(&table.map(|entry| (i32::from(entry) + offset) as u8));
        for quad in &mut quads {
            *quad = L::look_up(table, *quad);
        }
        quads
    }
}

/// Byte `index` of each word, as an integer.
#[inline(always)]
unsafe fn byte<L: Lanes>(words: L::Int, index: usize) -> L::Int {
    // SAFETY: the caller's promise.
    unsafe { L::and(L::right(words, 8 * index as u32), L::splat(255)) }
}

pub(super) struct Q8_0;

impl BlockFormat for Q8_0 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 34;
    const OFFSET: i32 = 128;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe { one_scale(place, 0) }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, _: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let mut quads = [L::splat(0); 8];
            for (index, quad) in quads.iter_mut().enumerate() {
                // A signed byte plus 128 has the other sign bit.
                *quad = L::xor(place.word::<L>(2, index), L::splat(0x8080_8080));
            }
            scaled(quads, header.floats[0])
        }
    }
}

pub(super) struct Q4_0;

impl BlockFormat for Q4_0 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 18;
    const OFFSET: i32 = 8;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe { one_scale(place, 0) }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, _: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe { scaled(nibbles::<L>(place, 2), header.floats[0]) }
    }
}

pub(super) struct Iq4Nl;

impl BlockFormat for Iq4Nl {
    const COLUMNS: usize = 32;
    const BYTES: usize = 18;
    const OFFSET: i32 = 128;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe { one_scale(place, 0) }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, _: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let quads = look_up::<L>(&UNEQUAL_STEPS, Self::OFFSET, nibbles::<L>(place, 2));
            scaled(quads, header.floats[0])
        }
    }
}

pub(super) struct Mxfp4;

impl BlockFormat for Mxfp4 {
    const COLUMNS: usize = 32;
    const BYTES: usize = 17;
    const OFFSET: i32 = 12;

    /// The scale is 2^(e − 128), whose bits are (e − 1)·2²³, or for e < 2 those of a subnormal
    /// number: 2²¹·2^e. Up to e = 2 the second is right and from e = 2 on the larger of both.
    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let e = L::bytes(place.unit(0, 1));
            let normal = L::left(L::add(e, L::splat(u32::MAX)), 23);
            let subnormal = L::left_each(L::splat(0x20_0000), L::min(e, L::splat(2)));
            let scale = L::from_bits(L::max(normal, subnormal));
            BlockHeader { ints: [e; 4], floats: [scale; 2] }
        }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, _: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let quads = look_up::<L>(&DOUBLED_FLOATS, Self::OFFSET, nibbles::<L>(place, 1));
            scaled(quads, header.floats[0])
        }
    }
}

/// Unsigned 8-bit floats (four exponent bits, three fraction bits), by integers: as the bits of an
/// f32 the small ones would be subnormal, and slow.
#[inline(always)]
unsafe fn float8<L: Lanes>(bits: L::Int) -> L::Float {
    // SAFETY: the caller's promise.
    unsafe {
        let (exponent, one) = (L::right(bits, 3), L::splat(1));
        let hidden = L::left(L::min(exponent, one), 3);
        let fraction = L::or(L::and(bits, L::splat(7)), hidden);
        let shift = L::add(L::max(exponent, one), L::splat(u32::MAX));
        L::mul(L::to_float(L::left_each(fraction, shift)), L::splat_float(1.0 / 512.0))
    }
}

pub(super) struct Nvfp4;

impl BlockFormat for Nvfp4 {
    const COLUMNS: usize = 64;
    const BYTES: usize = 36;
    const OFFSET: i32 = 12;
    const HALVES: bool = true;
    const ROW_SCALE: usize = 4;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe { BlockHeader { ints: [place.word::<L>(0, 0); 4], floats: [L::zero(); 2] } }
    }

    /// The numbers are doubled, so that half of each scale is needed.
    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, index: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let mask = L::splat(0x0f0f_0f0f);
            let mut quads = [L::splat(0); 8];
            let mut scales = [L::zero(); 2];
            for half in 0..2 {
                for pair in 0..2 {
                    let word = place.word::<L>(4, 4 * index + 2 * half + pair);
                    quads[4 * half + pair] = L::and(word, mask);
                    quads[4 * half + 2 + pair] = L::and(L::right(word, 4), mask);
                }
                scales[half] =
                    L::mul(float8::<L>(byte::<L>(header.ints[0], 2 * index + half)), L::splat_float(0.5));
            }
            let quads = look_up::<L>(&DOUBLED_FLOATS, Self::OFFSET, quads);
            BlockGroup { quads, scales, minimum: L::zero() }
        }
    }
}

pub(super) struct Iq4Xs;

impl BlockFormat for Iq4Xs {
    const COLUMNS: usize = 256;
    const BYTES: usize = 136;
    const OFFSET: i32 = 128;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let (high, low) = (L::shorts(place.unit(2, 2)), place.word::<L>(4, 0));
            BlockHeader { ints: [low, high, low, high], floats: [L::halves(place.unit(0, 2)), L::zero()] }
        }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, index: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let low = L::and(L::right(header.ints[0], 4 * index as u32), L::splat(15));
            let high = L::and(L::right(header.ints[1], 2 * index as u32), L::splat(3));
            let six = L::add(L::or(low, L::left(high, 4)), L::splat(-32i32 as u32));
            let scale = L::mul(header.floats[0], L::to_float(six));
            let quads = nibbles::<L>(place, 8 + 16 * index);
            scaled(look_up::<L>(&UNEQUAL_STEPS, Self::OFFSET, quads), scale)
        }
    }
}

/// The scales and minima of `q4_k` and `q5_k`: four words with a byte for each group, scales first.
#[inline(always)]
unsafe fn scales_and_minima<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
    // SAFETY: the caller's promise.
    unsafe {
        let (six, four, two) = (L::splat(0x3f3f_3f3f), L::splat(0x0f0f_0f0f), L::splat(0x0303_0303));
        let [first, second, last] = [0, 1, 2].map(|index| place.word::<L>(4, index));
        let upper = |word| L::left(L::and(L::right(word, 6), two), 4);
        let ints = [
            L::and(first, six),
            L::or(L::and(last, four), upper(first)),
            L::and(second, six),
            L::or(L::and(L::right(last, 4), four), upper(second)),
        ];
        BlockHeader { ints, floats: [L::halves(place.unit(0, 2)), L::halves(place.unit(2, 2))] }
    }
}

/// A group of `q4_k` or `q5_k` with these numbers.
#[inline(always)]
unsafe fn with_minimum<L: Lanes>(quads: [L::Int; 8], header: &BlockHeader<L>, index: usize) -> BlockGroup<L> {
    // SAFETY: the caller's promise.
    unsafe {
        let of = |words, by| L::mul(by, L::to_float(byte::<L>(words, index % 4)));
        let scale = of(header.ints[index / 4], header.floats[0]);
        let minimum = of(header.ints[2 + index / 4], header.floats[1]);
        BlockGroup { quads, scales: [scale; 2], minimum }
    }
}

pub(super) struct Q4K;

impl BlockFormat for Q4K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 144;
    const MINIMUM: bool = true;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe { scales_and_minima(place) }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, index: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe { with_minimum(half_bytes::<L>(place, 16 + index / 2 * 32, index % 2), header, index) }
    }
}

pub(super) struct Q5K;

impl BlockFormat for Q5K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 176;
    const MINIMUM: bool = true;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe { scales_and_minima(place) }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, index: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let mut quads = half_bytes::<L>(place, 48 + index / 2 * 32, index % 2);
            for (at, quad) in quads.iter_mut().enumerate() {
                let fifth = place.word::<L>(16, at);
                // Bit `index` of each byte becomes bit 4.
                let moved = match index.checked_sub(4) {
                    Some(beyond) => L::right(fifth, beyond as u32),
                    None => L::left(fifth, 4 - index as u32),
                };
                *quad = L::or(*quad, L::and(moved, L::splat(0x1010_1010)));
            }
            with_minimum(quads, header, index)
        }
    }
}

pub(super) struct Q6K;

impl BlockFormat for Q6K {
    const COLUMNS: usize = 256;
    const BYTES: usize = 210;
    const OFFSET: i32 = 32;
    const HALVES: bool = true;

    #[inline(always)]
    unsafe fn header<L: Lanes>(place: BlockPlace) -> BlockHeader<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let ints = [0, 1, 2, 3].map(|index| place.word::<L>(192, index));
            BlockHeader { ints, floats: [L::halves(place.unit(208, 2)), L::zero()] }
        }
    }

    #[inline(always)]
    unsafe fn group<L: Lanes>(place: BlockPlace, header: &BlockHeader<L>, index: usize) -> BlockGroup<L> {
        // SAFETY: the caller's promise.
        unsafe {
            let (part, within) = (index / 4, index % 4);
            let mut quads = half_bytes::<L>(place, 64 * part + within % 2 * 32, within / 2);
            for (at, quad) in quads.iter_mut().enumerate() {
                let upper = place.word::<L>(128 + 32 * part, at);
                // Bits 2·within and the next of each byte become bits 4 and 5.
                let moved = match within {
                    0 => L::left(upper, 4),
                    1 => L::left(upper, 2),
                    2 => upper,
                    _ => L::right(upper, 2),
                };
                *quad = L::or(*quad, L::and(moved, L::splat(0x3030_3030)));
            }
            let scale = |half: usize| {
                let at = 2 * index + half;
                let byte = L::right_signed(L::left(header.ints[at / 4], 24 - 8 * (at % 4) as u32), 24);
                L::mul(header.floats[0], L::to_float(byte))
            };
            BlockGroup { quads, scales: [scale(0), scale(1)], minimum: L::zero() }
        }
    }
}
