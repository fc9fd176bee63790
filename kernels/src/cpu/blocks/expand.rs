//! Expansion of blocks to pairs of bf16 columns, which TDPBF16PS multiplies.

use super::formats::{
    BlockFormat, BlockGroup, BlockPlace, Iq4Nl, Iq4Xs, Mxfp4, Nvfp4, Q4_0, Q4K, Q5K, Q6K, Q8_0, row_scales,
};
use super::lanes::Avx512;
use crate::cpu::tiles::avx2::Fetch;
use crate::cpu::weights::PANEL;
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// Floats of an expanded group of 32 columns: sixteen rows of pairs.
const GROUP_FLOATS: usize = 16 * PANEL;

/// Writes the groups `groups` (32 columns each) of a panel of sixteen rows, each value rounded to
/// bf16: for each pair of columns sixteen words, the first column in the lower halves.
///
/// # Safety
/// The CPU has AVX-512 F, BW, VL, VNNI and BF16. The panel is in `dtype`, which is a format of
/// blocks, and has these groups; `out` has room for them.
pub(crate) unsafe fn expand_block_panel(dtype: DType, panel: &[u8], groups: Range<usize>, out: &mut [f32]) {
    assert!(out.len() >= groups.len() * GROUP_FLOATS, "room for {} groups", groups.len());
    // SAFETY: the caller's promises.
    unsafe {
        match dtype {
            DType::Q8_0 => by::<Q8_0>(panel, groups, out),
            DType::Q4_0 => by::<Q4_0>(panel, groups, out),
            DType::Iq4Nl => by::<Iq4Nl>(panel, groups, out),
            DType::Iq4Xs => by::<Iq4Xs>(panel, groups, out),
            DType::Mxfp4 => by::<Mxfp4>(panel, groups, out),
            DType::Nvfp4 => by::<Nvfp4>(panel, groups, out),
            DType::Q4K => by::<Q4K>(panel, groups, out),
            DType::Q5K => by::<Q5K>(panel, groups, out),
            DType::Q6K => by::<Q6K>(panel, groups, out),
            _ => unreachable!("{dtype} is no format of blocks"),
        }
    }
}

/// # Safety
/// As [`expand_block_panel`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")]
unsafe fn by<F: BlockFormat>(panel: &[u8], groups: Range<usize>, out: &mut [f32]) {
    let in_block = F::COLUMNS / 32;
    let mut out = out.as_mut_ptr();
    for block in groups.start / in_block..groups.end.div_ceil(in_block) {
        let bytes = &panel[PANEL * (F::ROW_SCALE + block * F::BYTES)..][..PANEL * F::BYTES];
        let place = BlockPlace { block: bytes.as_ptr(), lane: 0 };
        // SAFETY: the panel has this block, and `out` has room for its groups.
        unsafe {
            let header = F::header::<Avx512>(place);
            macro_rules! groups {
                ($($index:literal)*) => { $(
                    if 32 * $index < F::COLUMNS && groups.contains(&(block * in_block + $index)) {
                        Fetch::Near.lines(&bytes[bytes.len() / in_block * $index..][..bytes.len() / in_block]);
                        let mut group = F::group::<Avx512>(place, &header, $index);
                        if F::ROW_SCALE > 0 {
                            let own = row_scales::<Avx512>(panel, 0);
                            group.scales = group.scales.map(|scale| _mm512_mul_ps(scale, own));
                        }
                        write::<F>(&group, out);
                        out = out.add(GROUP_FLOATS);
                    }
                )* };
            }
            groups!(0 1 2 3 4 5 6 7);
        }
    }
}

/// Writes a group.
///
/// # Safety
/// As [`expand_block_panel`]; `out` has room for it.
#[inline(always)]
unsafe fn write<F: BlockFormat>(group: &BlockGroup<Avx512>, out: *mut f32) {
    // SAFETY: (all) the caller's promises.
    unsafe {
        let offset = _mm512_set1_epi32(F::OFFSET);
        let byte = _mm512_set1_epi32(255);
        for (quad, &numbers) in group.quads.iter().enumerate() {
            let scale = group.scales[if F::HALVES { quad / 4 } else { 0 }];
            let value = |number| {
                let number = if F::OFFSET == 0 { number } else { _mm512_sub_epi32(number, offset) };
                let number = _mm512_cvtepi32_ps(number);
                match F::MINIMUM {
                    // The product is exact, so that this rounds as product and difference do.
                    true => _mm512_fmsub_ps(scale, number, group.minimum),
                    false => _mm512_mul_ps(scale, number),
                }
            };
            let out = out.add(2 * quad * PANEL);
            let first = value(_mm512_and_si512(numbers, byte));
            let second = value(_mm512_and_si512(_mm512_srli_epi32::<8>(numbers), byte));
            let third = value(_mm512_and_si512(_mm512_srli_epi32::<16>(numbers), byte));
            let fourth = value(_mm512_srli_epi32::<24>(numbers));
            _mm512_storeu_ps(out, pair(first, second));
            _mm512_storeu_ps(out.add(PANEL), pair(third, fourth));
        }
    }
}

/// Two columns rounded to bf16, the first in the lower halves.
///
/// # Safety
/// As [`expand_block_panel`].
#[inline(always)]
unsafe fn pair(first: __m512, second: __m512) -> __m512 {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut lane = 0;
        while lane < PANEL {
            (order[2 * lane], order[2 * lane + 1]) = (lane as u16, (PANEL + lane) as u16);
            lane += 1;
        }
        order
    };
    // SAFETY: ORDER is 64 bytes; a vector of bf16 and one of 16-bit integers have the same bytes.
    unsafe {
        let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
        _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_loadu_si512(ORDER.as_ptr().cast()), halves))
    }
}
